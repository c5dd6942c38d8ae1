"""How the tests run the co2 program, and look for processes that it left behind."""

import os
import pathlib
import signal
import subprocess
import time
import uuid

CO2 = os.environ["CO2_PROGRAM"]
SECONDS = 120  # far more than anything here takes: a hang is a failure, not a wait

# What a launcher around the tests may have set must not reach the program.
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment(**changes):
    result = {k: v for k, v in os.environ.items()
              if k not in LAUNCHER_VARIABLES and not k.startswith(("OMPI_", "SLURM_", "TORCHELASTIC_", "CO2_"))}
    result.update(changes)
    return result


def co2(*arguments, cwd=None, env=None, seconds=SECONDS, **options):
    """Runs co2 to its end, which must come within that many seconds."""
    return subprocess.run([CO2, *map(str, arguments)], cwd=cwd, env=env or environment(), capture_output=True,
                          text=True, timeout=seconds, **options)


class Started:
    """A co2 that runs in the background, marked so that all its descendants can be found."""

    def __init__(self, *arguments, cwd=None, env=None, **options):
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen([CO2, *map(str, arguments)], cwd=cwd,
                                        env={**(env or environment()), "TEST_MARK": self.mark},
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.communicate()

    def alive(self):
        """The processes that carry the mark, without zombies."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if f"TEST_MARK={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # gone, or not ours
                pass
        return found

    def signal(self, number):
        self.process.send_signal(number)

    def finish(self):
        """Its exit code, stdout and stderr; and the proof that nothing is left of it."""
        out, err = self.process.communicate(timeout=SECONDS)
        deadline = time.monotonic() + 10
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.alive() == []
        return self.process.returncode, out, err


def wait_for(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
