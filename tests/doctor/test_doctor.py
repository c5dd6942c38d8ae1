"""co2 doctor on real workers: what it prints, what it warns of, and how it ends when it can't do its work."""

import json
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess

import pytest

from program import CO2, Started, co2, environment, wait_for

SMALL = ["--batch", "2", "--context", "32"]
CHECKS = ["threads", "cores", "blas", "memory", "ports", "interface", "clocks", "versions", "stragglers"]


def report(*arguments, env=None):
    result = co2("doctor", *SMALL, *arguments, "--json", env=env)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def check(found, name):
    [one] = [entry for entry in found["checks"] if entry["name"] == name]
    return one


def test_two_workers_are_measured_and_checked():
    found = report("--workers", 2)
    assert found["model"] == "nano" and found["parameters"] > 500_000
    assert [worker["rank"] for worker in found["workers"]] == [0, 1]
    for worker in found["workers"]:
        step = worker["step"]
        assert 0 < step["lowest_seconds"] <= step["median_seconds"] <= step["highest_seconds"]
        assert step["count"] >= 1
        assert worker["product_flops"] > 0 and worker["peak_bytes"] > 4 * found["parameters"]
    assert found["step_seconds"] == max(worker["step"]["median_seconds"] for worker in found["workers"])
    network = found["network"]
    assert network["latency_seconds"] > 0
    sizes = [transfer["bytes"] for transfer in network["transfers"]]
    assert sizes == sorted(sizes) and len(sizes) >= 2
    # Each of two workers sends what it has once, in int4.
    assert abs(network["wire_bytes"] / (4.25 / 8 * found["parameters"]) - 1) < 0.01
    assert network["cost_seconds"] >= network["outer_seconds"] > 0
    assert 1 <= found["recommendation"]["local_steps"] <= 256
    assert found["recommendation"]["local_steps"] % found["recommendation"]["fragments"] == 0
    ratio = {entry["strategy"]: entry["of_none"] for entry in found["expected"]}
    assert ratio["none"] == 1 and len(ratio) == 10
    assert 0 < ratio["slowmo"] < 1 and ratio["slowmo"] == ratio["local-sgd"]
    assert [entry["name"] for entry in found["checks"]] == CHECKS
    assert found["failed"] is False


def test_the_text_is_short_and_progress_is_on_stderr():
    result = co2("doctor", *SMALL, "--workers", 2)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) <= 40
    assert "2 workers on 1 host" in lines[0]
    assert any(line.startswith("Recommended: --local-steps ") for line in lines)
    assert "how fast is the network?" in result.stderr
    assert "co2 doctor:" not in result.stdout


def test_half_the_bytes_with_bfloat16():
    found = report("--workers", 2, "--wire", "bfloat16")
    assert found["network"]["wire_bytes"] == 2 * found["parameters"]


def test_one_worker_alone():
    found = report("--workers", 1)
    assert "network" not in found and "expected" not in found
    assert [entry["name"] for entry in found["checks"]] == CHECKS


def test_a_low_bound_is_reported():
    found = report("--workers", 2, "--max-local-steps", 1, "--exchange-share", "0.000001")
    assert found["recommendation"]["local_steps"] == 1
    assert found["recommendation"]["bounded"] is True
    assert "--max-local-steps 1" in found["recommendation"]["text"]


def test_oversubscription_is_warned_of():
    cores = len(os.sched_getaffinity(0))
    found = report("--workers", 2, "--threads", cores + 1)
    one = check(found, "threads")
    assert one["level"] == "WARN"
    assert f"{2 * (cores + 1)} threads" in one["finding"] and "--threads" in one["advice"]
    assert all(worker["threads"] == cores + 1 for worker in found["workers"])


def test_shared_cores_are_warned_of():
    assert check(report("--workers", 2, "--no-pin"), "cores")["level"] == "WARN"


def test_a_library_on_old_kernels_is_found():
    # A busy neighbour may slow down what products are compared with, but not three times in a row.
    for _ in range(3):
        found = report("--workers", 1, "--threads", 1, env=environment(MKL_CBWR="COMPATIBLE"))  # of twenty years ago
        [worker] = found["workers"]
        if worker["blas"] != "mkl" or platform.machine() != "x86_64":
            pytest.skip("the test knows how to slow down MKL only")
        if check(found, "blas")["level"] == "WARN":
            break
    assert check(found, "blas")["level"] == "WARN", worker
    assert "OPENBLAS_CORETYPE" in check(found, "blas")["advice"]


@pytest.mark.parametrize("arguments, parts", [
    (["--workers", "0"], ["--workers = 0", "1 to 1024"]),
    (["--model", "nanno"], ["did you mean 'nano'?"]),
    (["--wire", "int7"], ["--wire 'int7'", "bfloat16"]),
    (["--exchange-share", "nan"], ["--exchange-share = nan"]),
    (["--batch", "0"], ["--batch = 0"]),
    (["--steps", "3"], ["'--steps'"]),
    (["--jsn"], ["did you mean '--json'?"]),
    (["--", "x"], ["'--'"]),
])
def test_bad_input(arguments, parts):
    result = co2("doctor", *arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("co2: error: ") and result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


def test_a_model_that_does_not_fit_is_refused_before_it_is_made():
    available = 1024 * int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    workers = available // 37_000_000_000 + 1  # 24 bytes for each of 1.5 G parameters
    if workers > 8:
        pytest.skip("this machine has room for many large models")
    result = co2("doctor", "--workers", max(workers, 2), "--model", "xl", "--json")
    assert result.returncode == 3, result.stderr
    found = json.loads(result.stdout)
    assert check(found, "memory")["level"] == "FAIL" and found["failed"] is True


def test_foreign_host():
    result = co2("doctor", "--workers", 2, "--host", "192.0.2.1")
    assert result.returncode == 3 and "192.0.2.1" in result.stderr


def job(rank, port, address="127.0.0.1", size=2, **more):
    return environment(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR=address,
                       MASTER_PORT=str(port), **more)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("rank, address", [(0, "127.0.0.1"), (1, "127.0.0.1"), (1, "192.0.2.1")])
def test_a_worker_that_nobody_joins_gives_up(rank, address):
    result = co2("doctor", *SMALL, "--rendezvous-timeout", 2, env=job(rank, free_port(), address))
    assert result.returncode == 3, result.stderr
    assert result.stdout == ""
    # A machine without a default route never gets as far as the rendezvous with another host.
    no_route = address != "127.0.0.1" and f"no route to host '{address}'" in result.stderr
    assert f"rank {rank} of 2" in result.stderr or no_route, result.stderr


def test_workers_with_other_options_are_told():
    port = free_port()
    with Started("doctor", "--batch", 2, env=job(0, port)) as first:
        second = co2("doctor", "--batch", 3, env=job(1, port))
        code, out, err = first.finish()
    assert (code, second.returncode) == (3, 3) and out == ""
    for message in (err, second.stderr):
        assert "rank 1 was started with other options" in message and "batch 3" in message


def test_ctrl_c_leaves_nothing_behind():
    with Started("doctor", "--workers", 2, "--model", "mini") as run:
        wait_for(lambda: len(run.alive()) >= 3 or run.process.poll() is not None)
        run.signal(signal.SIGINT)
        code, _, _ = run.finish()
    assert code == 128 + signal.SIGINT


NAMESPACES = """
set -e
ip link set lo up
ip link add near type veth peer name far
ip address add 10.99.0.1/24 dev near
ip link set near up
unshare -n sleep 100 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link set far netns $other
enter="nsenter -t $other -n --preserve-credentials"
$enter ip link set lo up
$enter ip address add 10.99.0.2/24 dev far
$enter ip link set far up
RANK=1 GLOO_SOCKET_IFNAME=$1 $enter "$CO2" doctor --batch 2 --context 32 --rendezvous-timeout 30 >rank1 2>&1 & worker=$!
set +e
RANK=0 "$CO2" doctor --batch 2 --context 32 --rendezvous-timeout 30 --json
first=$?
wait $worker
echo "exit codes $first $?" >&2
"""


def between_namespaces(interface, folder):
    """Rank 0 in one network namespace and rank 1 in another, which uses that interface."""
    env = job(0, 29533, "10.99.0.1", CO2=CO2)
    probe = subprocess.run(["unshare", "-rn", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"no network namespaces here: {probe.stderr.strip()}")
    result = subprocess.run(["unshare", "-rn", "bash", "-c", NAMESPACES, "bash", interface], cwd=folder, env=env,
                            capture_output=True, text=True, timeout=120)
    codes = re.search(r"exit codes (\d+) (\d+)", result.stderr)
    assert codes, result.stderr
    return json.loads(result.stdout), (int(codes[1]), int(codes[2])), (folder / "rank1").read_text()


def test_a_worker_on_another_host_that_can_be_reached(tmp_path):
    found, codes, _ = between_namespaces("far", tmp_path)
    assert codes == (0, 0)
    assert check(found, "ports")["level"] == "OK"
    assert [worker["interface"] for worker in found["workers"]] == ["near", "far"]


def test_a_worker_on_another_host_that_can_not_be_reached(tmp_path):
    found, codes, rank1 = between_namespaces("lo", tmp_path)
    assert codes == (3, 3), rank1
    one = check(found, "ports")
    assert one["level"] == "FAIL"
    assert "rank 0" in one["finding"] and "can't reach rank 1" in one["finding"] and "127.0.0.1:" in one["finding"]
    assert "(1 of 2 ways fail)" in one["finding"]
    assert "--interface" in one["advice"]
