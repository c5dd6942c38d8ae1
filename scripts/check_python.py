"""Says whether a Python can serve co2. Run by the interpreter in question; prints what is wrong and exits with 1.

    python check_python.py torch              LibTorch new enough, with Gloo, headers and CMake files
    python check_python.py requirements FILE  every requirement of FILE is installed

It must be quick, as every `make` runs it: packages are looked up, not imported.
"""

import importlib.metadata
import importlib.util
import mmap
import pathlib
import re
import sys

OLDEST_TORCH = (2, 13, 0)


def torch_problem():
    if sys.version_info < (3, 10):
        return f"Python {sys.version.split()[0]} is older than 3.10"
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return "it has no package torch"
    home = pathlib.Path(spec.origin).parent
    version = importlib.metadata.version("torch")
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:3])
    if numbers < OLDEST_TORCH:
        return f"its torch is {version}, older than {'.'.join(map(str, OLDEST_TORCH))}"
    if not (home / "share/cmake/Torch/TorchConfig.cmake").exists():
        return f"its torch {version} has no CMake files ({home}/share/cmake/Torch)"
    if not (home / "include/torch/csrc/api/include/torch/torch.h").exists():
        return f"its torch {version} has no C++ headers ({home}/include)"
    library = home / "lib/libtorch_cpu.so"
    if not library.exists():
        return f"its torch {version} has no {library}"
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        if contents.find(b"_ZTIN4c10d16ProcessGroupGlooE") < 0:
            return f"its torch {version} was built without Gloo"
    return None


def read_requirements(path):
    from pip._vendor.packaging.requirements import Requirement

    lines = [line.split("#")[0].strip() for line in pathlib.Path(path).read_text().splitlines()]
    requirements = [Requirement(line) for line in lines if line]
    return [r for r in requirements if r.marker is None or r.marker.evaluate()]


def is_installed(requirement):
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def requirements_problem(path):
    try:
        missing = [f"{r.name}{r.specifier}" for r in read_requirements(path) if not is_installed(r)]
    except ImportError:
        return "it has no pip"
    return "it lacks " + ", ".join(missing) if missing else None


def main(arguments):
    if arguments == ["torch"]:
        problem = torch_problem()
    elif len(arguments) == 2 and arguments[0] == "requirements":
        problem = requirements_problem(arguments[1])
    else:
        sys.exit(__doc__)
    if problem:
        print(problem)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
