"""What will `pip install -r FILE` download, and how much? Asked before it is done, since torch may be 200 MB or 3 GB.

    python plan_download.py FILE

Run by the environment's own Python. The first line on stdout is a requirement to add, or empty: the CPU build of torch,
where there is one but pip would prefer another. What follows is for people. Exits with 1 if it can't be known; the first
line, if it is there, counts even then.

pip itself tells only by downloading everything (`--dry-run`, in most versions). So those of its parts are used that look
packages up the way the user has configured it: indexes, folders, proxies, certificates. The first fitting version
counts, which need not be the one that pip settles on: hence "about".
"""

import logging
import os
import sys

from check_python import is_installed, read_requirements
from pip._internal.commands import create_command
from pip._internal.metadata import FilesystemWheel, get_wheel_distribution
from pip._internal.network.lazy_wheel import HTTPRangeRequestUnsupported, dist_from_wheel_url
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name


class Packages:
    """Where pip looks, without downloading a package."""

    def __init__(self, command):
        options, _ = command.parse_args(["--retries", "1", "--timeout", "10", "anything"])
        self.session = command.get_default_session(options)
        self.finder = command._build_package_finder(options, self.session)
        self.all_known = True

    def best(self, requirement):
        found = self.finder.find_best_candidate(requirement.name, requirement.specifier).best_candidate
        if found is None:
            raise LookupError(f"there is no {requirement}")
        return found

    def size(self, link):
        if link.is_file:
            return os.path.getsize(link.file_path)
        answer = self.session.head(link.url_without_fragment, headers={"Accept-Encoding": "identity"}, allow_redirects=True)
        answer.raise_for_status()
        return int(answer.headers["Content-Length"])

    def dependencies(self, name, link):
        try:
            if link.is_file:
                wheel = get_wheel_distribution(FilesystemWheel(link.file_path), name)
            else:  # reads no more of it than it needs
                wheel = dist_from_wheel_url(name, link.url_without_fragment, self.session)
        except HTTPRangeRequestUnsupported:
            self.all_known = False
            return []
        return [Requirement(text) for text in wheel.metadata.get_all("Requires-Dist", [])]


def plan(requirements, packages):
    """The packages to download, by name."""
    chosen, seen = {}, set()
    queue = list(requirements)
    while queue:
        requirement = queue.pop(0)
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in seen or is_installed(requirement):
            continue
        seen.add(key)
        if name not in chosen:
            chosen[name] = packages.best(requirement)
        for dependency in packages.dependencies(name, chosen[name].link):
            wanted = [{"extra": extra} for extra in ("", *requirement.extras)]
            if dependency.marker is None or any(dependency.marker.evaluate(extra) for extra in wanted):
                queue.append(dependency)
    return chosen


def cpu_build(requirements, packages):
    """The CPU build of the torch that is required, if pip would pass it over; otherwise None."""
    for requirement in requirements:
        if requirement.name == "torch" and not is_installed(requirement):
            version = packages.best(requirement).version
            cpu = f"{version.public}+cpu"
            if str(version) == cpu or not requirement.specifier.contains(cpu):
                return None
            try:
                return Requirement(f"torch=={packages.best(Requirement(f'torch=={cpu}')).version}")
            except LookupError:
                return None
    return None


def main(path):
    logging.disable()
    command = create_command("install")
    with command.main_context():
        packages = Packages(command)
        requirements = read_requirements(path)
        cpu = cpu_build(requirements, packages)
        print(cpu or "")
        if cpu:
            requirements = [cpu if r.name == "torch" else r for r in requirements]
        chosen = plan(requirements, packages)
        size = sum(packages.size(candidate.link) for candidate in chosen.values()) / 1e6
    asked = {canonicalize_name(r.name) for r in requirements}
    text = ", ".join(f"{name} {c.version}" for name, c in chosen.items() if name in asked)
    others = len(chosen.keys() - asked)
    if others:
        text += f" and {others} more that {'they need' if others > 1 else 'is needed'}"
    text += ": about " if packages.all_known else ": at least "
    text += f"{size / 1000:.1f} GB" if size >= 1000 else f"{max(size, 1):.0f} MB"
    print(text)
    if any(name.startswith("nvidia-") for name in chosen):
        print("This torch is made for NVIDIA's GPUs. Where pip looks there is no CPU build, which is a tenth of it. To get",
              "that, name PyTorch's package index of CPU builds in PIP_EXTRA_INDEX_URL: PyTorch's website says which,",
              "at \"Get started\".")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1])
    except Exception as error:  # whatever it is, e.g. another pip: not knowing must not stop anyone
        sys.exit(f"{type(error).__name__}: {error}")
