"""co2 lab as its user meets it: real namespaces, real links, real trainings, and what is left when it is killed."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import xml.dom.minidom

import pytest

from program import CO2, Started, co2, environment, wait_for


def works(*command):
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except FileNotFoundError:
        return False


# Asked of another program, so that a mistake of co2's is a failure and not a skip.
if not works("unshare", "--net", "true") and not works("unshare", "--user", "--map-root-user", "--net", "true"):
    pytest.skip("no namespaces here", allow_module_level=True)

SMALL = ["--corpus", "synthetic", "--batch", "2", "--context", "32", "--local-steps", "4", "--repeats", "1"]


def namespaces(pids):
    return {os.stat(f"/proc/{pid}/ns/net").st_ino for pid in pids} - {os.stat("/proc/self/ns/net").st_ino}


def users_of(inodes):
    """Processes that are in one of these network namespaces, or hold one open."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        for link in [process / "ns/net", *((process / "fd").iterdir() if os.access(process / "fd", os.R_OK) else [])]:
            try:
                target = os.readlink(link)
            except OSError:  # gone
                continue
            if target.startswith("net:[") and int(target[5:-1]) in inodes:
                found.append((process.name, target))
    return found


def has_lines(path):
    return path.exists() and path.stat().st_size > 0


def test_a_short_comparison(tmp_path):
    result = co2("lab", *SMALL, "--rates", "50mbit,unlimited", "--strategies", "none,ddp@6,co2", "--steps", 24,
                 "--out", "out", "--json", "figures.json", "--svg", "picture.svg", "--", "--learning-rate", "1e-3",
                 cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for word in ("50mbit; median of 1 repeat", "unlimited; median", "none ", "ddp@6", "co2 ", "tokens/s", "of none"):
        assert word in result.stdout
    assert result.stderr.count("(asked 50 Mbit/s)") == 6, "every link is measured before each run, both ways"
    assert "written: figures.json, picture.svg, and a folder for each run in out" in result.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [(run["rate"], run["strategy"]) for run in figures["runs"]] == \
        [(rate, name) for rate in ("50mbit", "unlimited") for name in ("none", "ddp@6", "co2")]
    assert all(run["error"] is None for run in figures["runs"])
    assert all(run["final_exchange_seconds"] >= 0 for run in figures["runs"])
    assert figures["configurations"]["co2"]["learning_rate"] == 1e-3
    slow, fast = ({row["strategy"]: row for row in table["rows"]} for table in figures["tables"])
    assert slow["none"]["ratio_to_none"]["median"] == 1
    assert slow["ddp@6"]["ratio_to_none"]["median"] < fast["ddp@6"]["ratio_to_none"]["median"], "a slow network shows"
    assert slow["co2"]["ratio_to_ddp"]["median"] > 1
    assert slow["co2"]["train_loss"]["median"] == pytest.approx(fast["co2"]["train_loss"]["median"], rel=1e-6)
    assert slow["ddp@6"]["train_loss"] is None
    assert slow["co2"]["local_steps"] == 4 and slow["none"]["local_steps"] is None
    assert slow["co2"]["seconds_to_target"]["median"] > 0
    xml.dom.minidom.parse(str(tmp_path / "picture.svg"))
    run = tmp_path / "out/50mbit/co2/repeat-1"
    for name in ("config.json", "metrics.jsonl", "summary.json", "worker-0.log", "worker-1.log"):
        assert (run / name).exists()
    assert not (run / "model").exists()


def run_with_changing_rate(folder):
    """Fast, slow, fast. The number of steps is the one of 70 s on the fast link. Returns the lines of metrics.jsonl, and
    when the link became slow and fast again."""
    training = ["--corpus", "synthetic", "--batch", "2", "--context", "32", "--repeats", "1"]
    result = co2("lab", *training, "--rates", "1gbit", "--strategies", "none", "--steps", 200, "--out", "fast", cwd=folder)
    assert result.returncode == 0, result.stderr
    (table,) = json.loads((folder / "fast/lab.json").read_text())["tables"]
    steps_per_second = table["rows"][0]["units_per_second"]["median"] / (2 * 2 * 32)
    # Exchanges may cost more than by default, and are not made small, so that it is the network which decides.
    result = co2("lab", *training, "--rates", "1gbit/8s/20mbit/30s/1gbit", "--strategies", "co2+plain",
                 "--steps", round(70 * steps_per_second), "--out", "out", "--", "--exchange-share", 0.05, cwd=folder,
                 seconds=360)  # 70 s were measured on what may have been a quieter machine
    assert result.returncode == 0, result.stderr
    (run,) = json.loads((folder / "out/lab.json").read_text())["runs"]
    slow, fast = (change["wall_seconds"] for change in run["rate_changes"])
    metrics = next(folder.glob("out/*/co2+plain/repeat-1/metrics.jsonl")).read_text()
    return [json.loads(line) for line in metrics.splitlines()], slow, fast


def what_did_not_follow(lines, slow, fast):
    """A sentence, or None. The wanted τ differ by far more than the noise of a shared machine. A round on the slow link
    takes more than two seconds, and τ follows after two or three of them: the second half of that phase counts as
    settled."""
    def between(begin, end):
        return [line for line in lines if begin <= line["wall_seconds"] < end]

    def exposed_share(part):
        first, last = part[0], part[-1]
        return (last["exposed_seconds"] - first["exposed_seconds"]) / (last["wall_seconds"] - first["wall_seconds"])

    if lines[-1]["wall_seconds"] <= fast + 10:
        return "the run did not see all three rates"
    during = between((slow + fast) / 2, fast)
    before, settled, after = (part[-1]["local_steps"] for part in (between(0, slow), during, lines))
    if settled <= 1.5 * before or after >= 0.7 * settled:
        return f"τ was {before} before, {settled} during, and {after} after the slow phase"
    for name, part in (("slow", during), ("last", between(fast, 1e9))):
        if (share := exposed_share(part)) >= 0.05:
            return f"in the {name} phase workers waited for {share:.1%} of the time; τ was " \
                   f"{[line['local_steps'] for line in part]}"
    return None


def test_local_steps_follow_the_network(tmp_path, capsys):
    """Twice at most: another program that takes the cores for a while looks like a slow network."""
    problem = None
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
        problem = what_did_not_follow(*run_with_changing_rate(tmp_path / attempt))
        if problem is None:
            break
        with capsys.disabled():
            print(f"\nthe {attempt} run with a changing rate: {problem}", flush=True)
    assert problem is None, problem


def test_killed_in_the_middle_it_leaves_nothing(tmp_path):
    with Started("lab", *SMALL, "--rates", "100mbit", "--strategies", "co2", "--steps", 1000000, "--out", "out",
                 cwd=tmp_path) as lab:
        wait_for(lambda: has_lines(tmp_path / "out/100mbit/co2/repeat-1/metrics.jsonl") or lab.process.poll() is not None)
        inodes = namespaces(lab.alive())
        assert len(inodes) == 3, "the lab's own, and one for each of two hosts"
        assert users_of(inodes)
        lab.signal(signal.SIGKILL)
        code, _, _ = lab.finish()
        assert code == -signal.SIGKILL
        wait_for(lambda: not users_of(inodes))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_shows_what_it_has(number, tmp_path):
    with Started("lab", *SMALL, "--rates", "100mbit", "--strategies", "none@4,co2", "--steps", 1000000, "--out", "out",
                 cwd=tmp_path) as lab:
        wait_for(lambda: has_lines(tmp_path / "out/100mbit/co2/repeat-1/metrics.jsonl") or lab.process.poll() is not None)
        inodes = namespaces(lab.alive())
        lab.signal(number)
        code, out, err = lab.finish()
        assert code == 128 + number, err
        assert users_of(inodes) == []
    assert "none@4" in out and "co2 " not in out
    assert "stopped" in err
    assert len(json.loads((tmp_path / "out/lab.json").read_text())["runs"]) == 1


def test_interrupted_while_it_prepares_it_leaves_nothing(tmp_path):
    """Not even what the set-up of the peers had started: here a stand-in for pip."""
    peers = tmp_path / "peers"
    peers.mkdir()
    (peers / "train.py").touch()
    (peers / "setup").write_text("#!/bin/sh\nsleep 1000 &\ntouch started\nwait\n")
    (peers / "setup").chmod(0o755)
    with Started("lab", *SMALL, "--rates", "100mbit", "--strategies", "co2", "--peers", "torch-ddp", "--out", "out",
                 cwd=tmp_path, env=environment(CO2_PEERS=str(peers))) as lab:
        wait_for(lambda: (tmp_path / "started").exists() or lab.process.poll() is not None)
        lab.signal(signal.SIGINT)
        code, _, err = lab.finish()
    assert code == 128 + signal.SIGINT and "before the first run" in err, err


@pytest.mark.parametrize("flag", ["--json", "--svg"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(flag, tmp_path):
    (tmp_path / "file").touch()
    result = co2("lab", *SMALL, "--out", "out", flag, "file/figures", cwd=tmp_path)
    assert result.returncode == 4 and f"{flag} file/figures can't be written" in result.stderr
    assert "run 1/" not in result.stderr


def test_one_failure_does_not_end_the_rest(tmp_path):
    with Started("lab", *SMALL, "--rates", "100mbit", "--strategies", "co2@1000000,none", "--steps", 4, "--out", "out",
                 cwd=tmp_path) as lab:
        wait_for(lambda: has_lines(tmp_path / "out/100mbit/co2@1000000/repeat-1/metrics.jsonl")
                 or lab.process.poll() is not None)
        [*workers] = set(lab.alive()) - {lab.process.pid}
        os.kill(workers[0], signal.SIGKILL)
        code, out, err = lab.finish()
    assert code == 1, err
    assert "co2@1000000: 1 of 1 run failed" in out
    assert "FAILED: worker" in err and "The end of out/100mbit/co2@1000000/repeat-1/worker-" in err
    failed, done = json.loads((tmp_path / "out/lab.json").read_text())["runs"]
    assert "was killed by signal 9" in failed["error"] and done["error"] is None


def test_it_works_without_root(tmp_path):
    if os.getuid() != 0:
        pytest.skip("this is not root: the other tests show it")
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv here")
    user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    if not works(*user, "unshare", "--user", "--map-root-user", "--net", "true"):
        pytest.skip("no user namespaces here")
    if not works(*user, CO2, "--version"):
        pytest.skip("others may not read the program")
    folder = pathlib.Path("/tmp") / f"co2-lab-test-{os.getpid()}"
    folder.mkdir()
    try:
        shutil.chown(folder, 65534, 65534)
        result = subprocess.run([*user, CO2, "lab", *SMALL, "--rates", "100mbit", "--strategies", "co2", "--steps", "8",
                                 "--out", "out"], cwd=folder, env=environment(HOME=str(folder)), capture_output=True,
                                text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        assert "co2 " in result.stdout
        assert (folder / "out/lab.json").stat().st_uid == 65534
    finally:
        shutil.rmtree(folder)


def test_it_says_what_the_kernel_refuses(tmp_path):
    inside = ["unshare", "--user", "--map-root-user", "--net", "/bin/sh", "-c"]
    if not works(*inside, "echo 0 > /proc/sys/user/max_net_namespaces"):
        pytest.skip("no user namespaces here")
    script = f'echo 0 > /proc/sys/user/max_net_namespaces; exec {CO2} lab {" ".join(SMALL)} --out out'
    result = subprocess.run([*inside, script], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert result.returncode == 3, result.stderr
    assert "user.max_net_namespaces" in result.stderr


def test_it_names_the_package_that_is_missing(tmp_path):
    result = co2("lab", cwd=tmp_path, env=environment(PATH=str(tmp_path)))
    assert result.returncode == 3
    assert "iproute2" in result.stderr


@pytest.mark.parametrize("arguments, words", [
    (["--rates", "fast"], "'fast' is no rate"),
    (["--rates", "1gbit/20s"], "ends with a duration"),
    (["--rates", "1gbit:1gbit:1gbit"], "names 3 hosts, but there are 2 workers"),
    (["--strategies", "co3"], "did you mean 'co2'"),
    (["--strategies", "co2@x"], "number of steps"),
    (["--workers", "1"], "--workers 1 is not allowed"),
    (["--repeats", "0"], "--repeats 0 is not allowed"),
    (["--model", "huge"], "--model 'huge' is not known"),
    (["--steps", "0"], "--steps = 0 is not allowed"),
    (["--", "--strategy", "ddp"], "write --strategies before --"),
    (["--", "--lerning-rate", "1"], "did you mean '--learning-rate'"),
    (["--peers", "horovod"], "--peers 'horovod' is not known"),
    (["--rats", "1gbit"], "did you mean '--rates'"),
])
def test_bad_input_is_refused_before_anything_runs(arguments, words, tmp_path):
    result = co2("lab", "--corpus", "synthetic", *arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr and list(tmp_path.iterdir()) == []
