"""Whatever is wrong with the input, the message says what, and the exit code says of which kind it is."""

import json
import os
import socket
import tempfile

import pytest

from program import co2, environment

OPTION, CLUSTER, DATA = 2, 3, 4


def refused(result, code, *parts):
    assert result.returncode == code, result.stderr
    assert result.stderr.startswith("co2: error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    for part in parts:
        assert part in result.stderr


@pytest.mark.parametrize("arguments, parts", [
    (["--strategy", "co3"], ["--strategy 'co3'", "did you mean 'co2'?", "overlap-local-sgd"]),
    (["--local-steps", "0"], ["--local-steps = 0", "1 to 1000000"]),
    (["--local-steps", "12.5"], ["--local-steps expects a whole number", "'12.5'"]),
    (["--learning-rate", "-0.001"], ["--learning-rate = -0.001", "0 to 100"]),
    (["--learning-rate", "nan"], ["--learning-rate = nan", "0 to 100"]),
    (["--learning-rate", "inf"], ["--learning-rate = inf"]),
    (["--outer-rate", "-1"], ["--outer-rate = -1", "above 0, at most 10"]),
    (["--outer-rate", "nan"], ["--outer-rate = nan"]),
    (["--momentum", "1"], ["--momentum = 1", "below 1"]),
    (["--momentum", "nan"], ["--momentum = nan"]),
    (["--clip", "nan"], ["--clip = nan"]),
    (["--workers", "0"], ["--workers = 0", "1 to 1024"]),
    (["--workers", "-2"], ["--workers = -2", "1 to 1024"]),
    (["--workers", "two"], ["--workers expects a whole number", "'two'"]),
    (["--fragments", "5", "--local-steps", "4"], ["fragments = 5", "local_steps (4)"]),
    (["--strategy", "ddp", "--momentum", "0.5"], ["momentum", "'ddp'"]),
    (["--agree-moments", "4", "--optimizer", "sgd"], ["agree_moments = 4", "'sgd'", "second moments"]),
    (["--agree-moments", "4", "--optimizer", "sgd", "--print-config"], ["agree_moments = 4", "'sgd'"]),
    (["--port", "65536"], ["--port = 65536", "0 to 65535"]),
    (["--steps", "99999999999999999999999"], ["--steps"]),
    (["--model", "nanno"], ["did you mean 'nano'?"]),
    (["gtp"], ["task 'gtp'", "did you mean 'gpt'?"]),
    (["--local-step", "3"], ["'--local-step'", "did you mean '--local-steps'?"]),
    (["--no-pinn"], ["did you mean '--no-pin'?"]),
    (["--learning-rate"], ["--learning-rate"]),
    (["--out", ""], ["--out"]),
    (["gpt", "more"], ["'more'"]),
    (["--nesterov=foo"], ["--nesterov takes no value"]),
    (["--pin=2"], ["--pin takes no value"]),
    (["--steps"], ["--steps needs a value", "'co2 train --help'"]),
    (["--config", ""], ["--config is empty"]),
    (["--out", os.fsdecode(b"\xff")], ["--out is not UTF-8"]),
    (["--corpus", os.fsdecode(b"\xff")], ["--corpus is not UTF-8"]),
])
def test_option(arguments, parts, tmp_path):
    refused(co2("train", *arguments, cwd=tmp_path), OPTION, *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments, parts", [
    ([], ["train, launch"]),
    (["trian"], ["unknown command 'trian'", "did you mean 'train'?"]),
    (["--verison"], ["did you mean '--version'?"]),
    (["plan", "memory", "--bogus"], ["'--bogus'", "'co2 plan memory --help'"]),
])
def test_command(arguments, parts):
    refused(co2(*arguments), OPTION, *parts)


def listening():
    server = socket.create_server(("127.0.0.1", 0))
    return server, server.getsockname()[1]


def test_port_in_use(tmp_path):
    server, port = listening()
    with server:
        refused(co2("train", "--workers", 2, "--port", port, "--corpus", "synthetic", cwd=tmp_path), CLUSTER,
                f"port {port} is in use")
        refused(co2("launch", "-n", 2, "--port", port, "--", "true"), CLUSTER, f"port {port} is in use")


def test_foreign_host(tmp_path):
    refused(co2("train", "--workers", 2, "--host", "192.0.2.1", "--corpus", "synthetic", cwd=tmp_path), CLUSTER,
            "192.0.2.1")


def test_missing_corpus(tmp_path):
    refused(co2("train", "--corpus", tmp_path / "no-such.txt", cwd=tmp_path), DATA, "no-such.txt")
    refused(co2("train", "--corpus", "guttenberg", cwd=tmp_path), DATA, "did you mean 'gutenberg'?")
    assert list(tmp_path.iterdir()) == []


def test_unwritable_output(tmp_path):
    (tmp_path / "file").write_text("in the way")
    refused(co2("train", "--corpus", "synthetic", "--out", tmp_path / "file" / "out"), DATA, str(tmp_path / "file"))
    refused(co2("train", "--corpus", "synthetic", "--out", "/proc/out"), DATA, "/proc/out")


@pytest.mark.parametrize("name, text, parts", [
    ("run.toml", "steps = 10\nlocal_stepps = 3\n", ["local_stepps", "did you mean 'local_steps'?", "run.toml, line 2"]),
    ("run.json", '{"steps": 10,\n"local-stepps": 3}', ["did you mean 'local-steps'?", "run.json, line 2"]),
    ("run.toml", "steps = = 10\n", ["run.toml, line 1", "TOML"]),
    ("run.json", '{"steps": }', ["run.json, line 1", "JSON"]),
    ("run.toml", 'steps = "many"\n', ["steps expects a whole number", "'many'", "line 1"]),
    ("run.toml", "learning_rate = nan\n", ["learning_rate = nan", "line 1"]),
    ("run.toml", "[sync]\nlocal_steps = 3\n", ["'sync'", "top level"]),
    ("run.toml", "seed = 2024-01-01\n", ["'seed' is a date or time", "line 1"]),
    ("run.toml", "steps = 5.0\n", ["steps expects a whole number, not 5.0"]),
    ("run.json", '{"steps": 1e400}', ["JSON", "run.json", "1e400"]),
    ("run.json", '{"steps": 5, "steps": 6}', ["'steps' is there twice", "run.json"]),
])
def test_configuration_file(name, text, parts, tmp_path):
    (tmp_path / name).write_text(text)
    refused(co2("train", "--config", tmp_path / name), OPTION, *parts)


def test_missing_configuration_file(tmp_path):
    refused(co2("train", "--config", tmp_path / "none.toml"), DATA, "none.toml")
    refused(co2("train", "--config", tmp_path), DATA, str(tmp_path))


@pytest.mark.parametrize("variables, parts", [
    ({"RANK": "0"}, ["WORLD_SIZE"]),
    ({"WORLD_SIZE": "2"}, ["RANK"]),
    ({"RANK": "2", "WORLD_SIZE": "2"}, ["RANK", "2"]),
    ({"RANK": "one", "WORLD_SIZE": "2"}, ["RANK", "'one'"]),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, ["MASTER_PORT"]),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, ["MASTER_ADDR"]),
    ({"RANK": "0", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"},
     ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"]),
    ({"OMPI_COMM_WORLD_RANK": "0"}, ["OMPI_COMM_WORLD_SIZE"]),
])
def test_launcher_variables(variables, parts, tmp_path):
    refused(co2("train", "--corpus", "synthetic", cwd=tmp_path, env=environment(**variables)), CLUSTER, *parts)


def test_workers_contradict_the_launcher(tmp_path):
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    refused(co2("train", "--workers", 3, cwd=tmp_path, env=environment(**variables)), OPTION, "workers = 3",
            "started 2")


@pytest.mark.parametrize("arguments, code, parts", [
    (["-n", "0", "--", "true"], OPTION, ["--workers 0", "1 to 1024"]),
    (["-n", "x", "--", "true"], OPTION, ["x"]),
    (["--", "true"], OPTION, ["--workers"]),
    (["-n", "2"], OPTION, ["program is missing"]),
    (["-n", "2", "--"], OPTION, ["program is missing"]),
    (["-n", "2", "python", "x.py"], OPTION, ["write -- before the program", "-- python x.py"]),
    (["python", "x.py"], OPTION, ["write -- before the program", "-n N -- python x.py"]),
    (["-n", "2", "--threds", "1", "--", "true"], OPTION, ["did you mean '--threads'?"]),
    (["-n", "2", "--port", "-1", "--", "true"], OPTION, ["--port -1"]),
    (["-n", "2", "--", "no-such-program"], 127, ["no-such-program"]),
    (["-n", "2", "--", "/"], 126, ["'/'"]),
])
def test_launch(arguments, code, parts):
    refused(co2("launch", *arguments), code, *parts)


def test_print_config_is_accepted_again(tmp_path):
    first = co2("train", "--print-config", "--strategy", "streaming-diloco", "--local-steps", 12,
                "--learning-rate", "0.003", "--workers", 3)
    assert first.returncode == 0, first.stderr
    printed = json.loads(first.stdout)
    assert printed["learning_rate"] == 0.003 and printed["workers"] == 3
    assert printed["fragments"] == 4 and printed["restart"] == "mix", "values of the strategy are filled in"
    (tmp_path / "again.json").write_text(first.stdout)
    assert co2("train", "--print-config", "--config", tmp_path / "again.json").stdout == first.stdout


def test_flags_win_over_the_file(tmp_path):
    (tmp_path / "run.toml").write_text("steps = 10\nlocal_steps = 3\n")
    printed = json.loads(co2("train", "--steps", 20, "--config", tmp_path / "run.toml", "--print-config").stdout)
    assert printed["steps"] == 20
    assert printed["local_steps"] == 3


def test_help_and_version():
    for arguments in (["--help"], ["train", "--help"], ["launch", "--help"], ["--version"]):
        result = co2(*arguments)
        assert result.returncode == 0 and result.stderr == "" and result.stdout
    text = co2("train", "--help").stdout
    for part in ("--local-steps", "1 to 1000000", "(default: auto)", "Examples:"):
        assert part in text


def test_configuration_from_a_pipe():
    printed = co2("train", "--print-config", "--config", "/dev/stdin", input="steps = 7\n")
    assert json.loads(printed.stdout)["steps"] == 7


def test_unreadable_corpus_folder():
    # As somebody else if we are root, who may read everything; so not in tmp_path, which is ours alone.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        os.mkdir(f"{folder}/texts")
        os.chmod(f"{folder}/texts", 0o111)
        result = co2("train", "--workers", 1, "--corpus", f"{folder}/texts", "--out", f"{folder}/out",
                     **({"user": 65534} if os.geteuid() == 0 else {}))
    refused(result, DATA, f"can't read the corpus folder {folder}/texts")


def test_plan_says_that_nothing_is_sharded():
    result = co2("plan", "memory", "--workers", 1, "--zero", 2, "--json")
    assert result.returncode == 0 and json.loads(result.stdout)["zero"] == 0
    assert "zero 2 has nothing to shard" in result.stderr


def test_plan_has_examples_of_its_own():
    text = co2("plan", "--help").stdout
    assert "co2 plan memory" in text and "co2 train" not in text
