"""co2 launch with real processes."""

import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from program import CO2, SECONDS, Started, co2, environment, wait_for


def shell(workers, script, *options):
    return ["launch", "-n", workers, *options, "--", "sh", "-c", script]


def test_output_is_prefixed_line_by_line_and_kept_apart():
    result = co2(*shell(3, "echo out $RANK; echo err $RANK >&2; printf 'no newline'"))
    assert result.returncode == 0
    assert sorted(result.stdout.splitlines()) == sorted(f"[{r}] {text}" for r in range(3)
                                                        for text in (f"out {r}", "no newline"))
    assert sorted(result.stderr.splitlines()) == [f"[{r}] err {r}" for r in range(3)]


def test_lines_of_different_ranks_never_mix():
    # Pieces of lines, some longer than a pipe takes at once, written by four at the same time to one place.
    script = ("import os, sys\nr = os.environ['RANK']\nfor i in range(300):\n"
              "  for piece in range(4): os.write(1 + i % 2, (r * (1 + 37 * i % 2000)).encode())\n"
              "  os.write(1 + i % 2, b'\\n')\n")
    result = subprocess.run([CO2, "launch", "-n", "4", "--", sys.executable, "-c", script], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env=environment(), timeout=120)
    lines = result.stdout.decode().splitlines()
    assert len(lines) == 1200
    for line in lines:
        assert re.fullmatch(r"\[(\d)\] \1*", line), line[:100]
    for rank in range(4):
        mine = sorted(len(line) - 4 for line in lines if line.startswith(f"[{rank}]"))
        assert mine == sorted(4 * (1 + 37 * i % 2000) for i in range(300))


def test_progress_bars_become_lines():
    result = co2(*shell(1, r"printf '\r10 %%\r20 %%\r\ndone\r\n'"))
    assert result.stdout == "[0] 10 %\n[0] 20 %\n[0] done\n"


def test_bytes_pass_unchanged():
    result = subprocess.run([CO2, "launch", "-n", "1", "--", "printf", r"\000\377\001\n"], capture_output=True,
                            env=environment(), timeout=120)
    assert result.stdout == b"[0] \x00\xff\x01\n"


def test_no_prefix_leaves_output_alone():
    assert co2(*shell(2, "echo line", "--no-prefix")).stdout == "line\nline\n"


def test_long_output_is_not_held_in_memory():
    # 200 MB without a single end of line, while nobody reads: the writer has to wait, co2 must not grow.
    with Started(*shell(1, "head -c 200000000 /dev/zero")) as run:
        wait_for(lambda: len(run.alive()) >= 2)
        time.sleep(1)
        status = pathlib.Path(f"/proc/{run.process.pid}/status").read_text()
        before = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
        run.process.stdout.buffer.read(20_000_000)
        status = pathlib.Path(f"/proc/{run.process.pid}/status").read_text()
        assert int(re.search(r"VmRSS:\s+(\d+)", status)[1]) - before < 20_000
        run.process.stdout.close()
        assert run.process.wait(timeout=60) == 128 + signal.SIGPIPE


def test_exit_code_of_the_failing_worker_and_the_end_of_the_others():
    with Started(*shell(3, "if [ $RANK = 1 ]; then exit 9; fi; sleep 1000")) as run:
        code, _, err = run.finish()
    assert code == 9
    assert "co2: worker 1 ended with exit code 9; ending the others" in err


def test_killed_worker():
    code = co2(*shell(2, "if [ $RANK = 1 ]; then kill -KILL $$; fi; sleep 1000"))
    assert code.returncode == 137
    assert "worker 1 was killed by signal 9" in code.stderr


TRAP = ("import os, signal, sys, time\n"
        "def handler(number, _):\n"
        "  print('got', number, flush=True); time.sleep(.5 * int(os.environ['RANK']))\n"
        "  print('saved', flush=True); sys.exit(int(os.environ.get('CODE', 0)))\n"
        "for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT): signal.signal(s, handler)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(.05)\n")


def started_trap(**variables):
    run = Started("launch", "-n", 2, "--", sys.executable, "-c", TRAP, env=environment(**variables))
    for _ in range(2):
        assert run.process.stdout.readline().endswith("ready\n")
    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_reach_all_workers_once_and_they_may_save(number):
    with started_trap() as run:
        run.signal(number)
        code, out, _ = run.finish()
    assert code == 0
    for rank in range(2):
        assert out.count(f"[{rank}] got {int(number)}\n") == 1
        assert out.count(f"[{rank}] saved\n") == 1


def test_a_signal_that_comes_twice_in_a_row_counts_once():
    # timeout(1) signals its child and then the whole process group. Several attempts: on a busy machine the two may
    # arrive so far apart that they rightly count as two.
    for _ in range(5):
        with started_trap() as run:
            run.signal(signal.SIGINT)
            first = run.process.stdout.readline()  # so that the first is no longer pending
            run.signal(signal.SIGINT)
            code, out, _ = run.finish()
        if code == 0 and (first + out).count("saved") == 2:
            return
    pytest.fail("the second signal killed the workers")


def test_workers_that_end_with_an_interrupt_code_do_not_cut_the_others_short():
    with started_trap(CODE="130") as run:
        run.signal(signal.SIGINT)
        code, out, _ = run.finish()
    assert code == 130
    assert out.count("saved") == 2
    assert f"got {int(signal.SIGTERM)}" not in out


def test_ctrl_c_at_a_terminal():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(CO2, [CO2, "launch", "-n", "2", "--", sys.executable, "-c", TRAP], environment())
    text = b""
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # how a terminal says that nobody is left on its other side
                break
            asked = text.count(b"ready") == 2
            text += piece
            if text.count(b"ready") == 2 and not asked:
                os.write(terminal, b"\x03")
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, text
    assert text.count(b"] got 2\r\n") == 2 and text.count(b"] saved\r\n") == 2
    assert b"a second time ends it at once" in text


def test_second_signal_ends_at_once():
    stubborn = ("import signal, time\nfor s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
                "print('ready', flush=True)\nwhile True: time.sleep(.05)\n")
    with Started("launch", "-n", 2, "--", sys.executable, "-c", stubborn) as run:
        for _ in range(2):
            run.process.stdout.readline()
        run.signal(signal.SIGINT)
        time.sleep(0.5)
        assert run.process.poll() is None
        run.signal(signal.SIGINT)
        code, _, _ = run.finish()
    assert code == 130


def test_workers_die_with_the_launcher():
    with Started(*shell(2, "echo ready; exec sleep 1000")) as run:
        for _ in range(2):
            run.process.stdout.readline()
        wait_for(lambda: len(run.alive()) == 3)  # while one execs, its environment is empty for a moment
        run.signal(signal.SIGKILL)
        code, _, _ = run.finish()
    assert code == -signal.SIGKILL


def test_a_reader_that_goes_away_ends_the_workers():
    with Started(*shell(2, "while true; do echo line; sleep 0.01; done")) as run:
        run.process.stdout.readline()
        run.process.stdout.close()
        run.process.stdout = None
        code, _, _ = run.finish()
    assert code == 128 + signal.SIGPIPE


def test_stop_and_continue_reach_the_workers():
    def states(run):
        result = []
        for pid in run.alive():
            result.append(re.search(r"State:\s+(\w)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])
        return result

    with Started(*shell(2, "echo ready; exec sleep 1000"), start_new_session=True) as run:
        for _ in range(2):
            run.process.stdout.readline()
        run.signal(signal.SIGTSTP)
        wait_for(lambda: states(run) == ["T", "T", "T"])
        run.signal(signal.SIGCONT)
        wait_for(lambda: "T" not in states(run))
        run.signal(signal.SIGTERM)
        code, _, _ = run.finish()
    assert code == 128 + signal.SIGTERM


def test_standard_input_goes_to_rank_0():
    result = co2(*shell(2, "cat"), input="hello\n")
    assert result.stdout == "[0] hello\n"


def test_another_launchers_places_are_replaced():
    outer = environment(RANK="7", WORLD_SIZE="9", OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_SIZE="5",
                        TORCHELASTIC_USE_AGENT_STORE="True")
    result = co2(*shell(1, "echo $RANK $WORLD_SIZE ${OMPI_COMM_WORLD_RANK-none} ${TORCHELASTIC_USE_AGENT_STORE-none}"),
                 env=outer)
    assert result.stdout == "[0] 0 1 none none\n"


def test_torch_programs_find_each_other():
    pytest.importorskip("torch")
    script = ("import torch, torch.distributed as d\n"
              "d.init_process_group('gloo')\nx = torch.tensor([1.0 + d.get_rank()])\nd.all_reduce(x)\n"
              "print(x.item())\nd.destroy_process_group()\n")
    result = co2("launch", "-n", 2, "--", sys.executable, "-c", script)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0] 3.0", "[1] 3.0"]


def test_exit_codes_count_where_the_end_of_children_is_ignored():
    result = co2(*shell(1, "exit 7"), preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert result.returncode == 7


def test_an_ignored_signal_is_no_wish_to_stop():
    with Started("launch", "-n", 2, "--", sys.executable, "-c", TRAP,
                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as run:
        for _ in range(2):
            assert run.process.stdout.readline().endswith("ready\n")
        run.signal(signal.SIGHUP)
        time.sleep(0.4)
        run.signal(signal.SIGTERM)
        code, out, _ = run.finish()
    assert code == 0
    assert out.count("saved") == 2 and f"got {int(signal.SIGHUP)}\n" not in out


def test_a_second_signal_does_not_wait_for_the_reader():
    with Started(*shell(1, "echo ready >&2; head -c 3000000 /dev/zero")) as run:
        assert run.process.stderr.readline() == "[0] ready\n"
        time.sleep(0.5)  # until both the pipe and what co2 holds are full
        run.signal(signal.SIGINT)
        time.sleep(0.5)
        assert run.process.poll() is None
        run.signal(signal.SIGINT)
        assert run.process.wait(timeout=SECONDS) == 130
