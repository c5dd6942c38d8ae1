"""scripts/setup says what it will download and how much, and takes the CPU build of torch where there is one."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from package_index import add_package, serve

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
MEGABYTE = 1_000_000


@pytest.fixture
def packages(tmp_path):
    """numpy as scripts/requirements.txt wants it, and a package that every torch needs; no torch yet."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for version in ("2.4.6", "2.2.6"):
        add_package(folder, "numpy", version)
    add_package(folder, "sympy", "1.14.0", size=2 * MEGABYTE)
    return folder


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory):
    """With nothing but pip. Made once, as that is what takes longest here."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


@pytest.fixture
def set_up(tmp_path, empty_environment):
    """Runs scripts/setup in a fresh clone: what it says, and which torch is installed then. It ends with an error, because
    none of these torches is one."""
    def run(index, *arguments, environment=".venv", **variables):
        project = tmp_path / "project"
        shutil.copytree(SCRIPTS, project / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(empty_environment, project / environment, symlinks=True)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("PIP_", "CO2_")) and name not in ("VIRTUAL_ENV", "PYTHONPATH")}
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_NO_CACHE_DIR": "1", "NO_PROXY": "127.0.0.1"}
        result = subprocess.run([project / "scripts/setup", "--no-packages", *arguments], env=kept | pip | variables,
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        print(result.stdout)
        torch = [path.name for path in project.glob(f"{environment}/lib/python*/site-packages/torch-*.dist-info")]
        return result.stdout, torch[0].removeprefix("torch-").removesuffix(".dist-info") if torch else None
    return run


def add_cuda_torch(folder, version):
    """Needs an extra of a package that needs the large one, as the real one does."""
    add_package(folder, "torch", version, ["sympy>=1.13", "cuda_toolkit[runtime]==13.0"], size=5 * MEGABYTE)
    add_package(folder, "cuda_toolkit", "13.0", ['nvidia_runtime ; extra == "runtime"', 'absent ; extra == "other"'])
    add_package(folder, "nvidia_runtime", "13.0.1", size=30 * MEGABYTE)


def add_cpu_torch(folder, version="2.13.0+cpu"):
    add_package(folder, "torch", version, ["sympy>=1.13"], size=3 * MEGABYTE)


def test_takes_the_cpu_build_though_pip_prefers_another(set_up, packages):
    add_cuda_torch(packages, "2.13.0+cu130")
    add_cpu_torch(packages)
    with serve(packages) as index:
        said, torch = set_up(index)
    assert torch == "2.13.0+cpu"
    assert "downloading into .venv: torch 2.13.0+cpu, numpy 2." in said
    assert "and 1 more that is needed: about 5 MB" in said
    assert "NVIDIA" not in said


def test_says_how_much_cuda_brings_and_how_to_avoid_it(set_up, packages):
    add_cuda_torch(packages, "2.13.0")
    with serve(packages) as index:
        said, torch = set_up(index)
    assert torch == "2.13.0"
    assert "and 3 more that they need: about 37 MB" in said
    assert "made for NVIDIA's GPUs" in said
    assert "PIP_EXTRA_INDEX_URL" in said


def test_packages_in_a_folder_count_too(set_up, packages):
    add_cpu_torch(packages)
    said, torch = set_up(f"file://{packages}/no-index", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(packages))
    assert torch == "2.13.0+cpu"
    assert "about 5 MB" in said


def test_goes_on_where_the_size_is_unknown(set_up, packages):
    add_cuda_torch(packages, "2.13.0+cu130")
    add_cpu_torch(packages)
    with serve(packages, knows_sizes=False) as index:
        said, torch = set_up(index)
    assert torch == "2.13.0+cpu"
    assert "downloading into .venv: torch==2.13.0, numpy==2." in said
    assert "size unknown" in said


def test_another_torch_has_an_environment_of_its_own(tmp_path, set_up, packages):
    add_cpu_torch(packages)
    add_cuda_torch(packages, "2.99.0")
    with serve(packages) as index:
        said, torch = set_up(index, "--torch=2.99.0", environment=".venv-torch-2.99.0")
    assert torch == "2.99.0"
    assert "downloading into .venv-torch-2.99.0: torch 2.99.0, numpy" in said
    assert not (tmp_path / "project/.venv").exists()
