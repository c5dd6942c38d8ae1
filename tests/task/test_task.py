"""A task that only this program has (images_task.cc): everything that is said about it comes from itself."""

import json
import subprocess

import pytest

from program import co2

ALONE = ["--workers", 1, "--batch", 4]


def words(result):
    """What was shown, without the spaces that align it."""
    assert result.returncode == 0, result.stderr
    return " ".join((result.stdout + result.stderr).split())


def printed(*arguments):
    return json.loads(co2("train", "--print-config", *arguments).stdout)


def refusal(*arguments):
    result = co2(*arguments)
    assert result.returncode in (2, 4), result.stdout
    return result.stderr


def test_help_lists_every_task_with_its_models_and_options():
    text = words(co2("train", "--help"))
    assert "What to train [gpt, images] (default: gpt)" in text
    assert "Size of the model; the first of a task is its default [gpt: nano, pico, tiny," in text
    assert "; images: coarse, fine]" in text
    assert "Task images: --pixels N Width and height; 0: the model's own [0 to 64] (default: 0)" in text
    assert "--flip,--no-flip Mirror some of them (default: true)" in text
    assert "Tasks gpt, images: --corpus NAME gutenberg" in text and "; images: Which photos" in text
    assert "Task gpt: --context N Tokens per sample" in text
    assert "images tells photos apart. A sample is a photo; speed is in images per second." in text
    assert "coarse 4 by 4 pixels" in text and "co2 train images --pixels 6" in text
    for command in (["plan", "memory"], ["doctor"]):
        text = words(co2(*command, "--help"))
        assert "--pixels" in text and "--context" in text
        assert "--flip" not in text and "--corpus" not in text, "they change neither memory nor time"
    assert "--flip" in words(co2("lab", "--help"))


def test_each_task_has_its_own_options_and_defaults(tmp_path):
    images = printed("images")
    assert (images["task"], images["model"], images["pixels"], images["corpus"]) == ("images", "coarse", 0, "photos")
    assert "context" not in images and "sample_bytes" not in images
    assert (images["optimizer"], images["learning_rate"]) == ("sgd", 0.1)
    assert printed("images", "--optimizer", "adam")["learning_rate"] == 0.002
    gpt = printed()
    assert (gpt["task"], gpt["model"], gpt["corpus"], gpt["sample_bytes"]) == ("gpt", "nano", "auto", 200)
    assert "pixels" not in gpt and gpt["optimizer"] == "adamw"
    # The task may come after what depends on it, and out of a file.
    assert printed("--pixels", 7, "--no-flip", "images")["pixels"] == 7
    for name, text in (("run.toml", 'pixels = 5\nflip = false\ntask = "images"\n'),
                       ("run.json", '{"pixels": 5, "flip": false, "task": "images"}')):
        (tmp_path / name).write_text(text)
        config = printed("--config", tmp_path / name, "--model", "fine")
        assert (config["pixels"], config["flip"], config["model"]) == (5, False, "fine")
    (tmp_path / "again.json").write_text(json.dumps(images))
    assert printed("--config", tmp_path / "again.json") == images


@pytest.mark.parametrize("arguments, message", [
    (["images", "--context", 5], "--context is no option of the task images: it is one of gpt"),
    (["--pixels", 5], "--pixels is no option of the task gpt: it is one of images"),
    (["images", "--model", "corse"], "'corse' is not known; did you mean 'coarse'? Allowed: coarse, fine"),
    (["images", "--model", "nano"], "--model 'nano' is not known"),
    (["images", "--pixels", 65], "--pixels = 65 is not allowed: it must be 0 to 64"),
    (["images", "--pixles", 6], "did you mean '--pixels'?"),
    (["images", "--corpus", "paintings"], "there are only photos"),
    (["imagse"], "did you mean 'images'?"),
])
def test_what_is_wrong_is_said_in_the_words_of_the_task(arguments, message):
    assert message in refusal("train", *arguments)


def test_an_option_of_another_task_in_a_file_is_refused_with_its_place(tmp_path):
    (tmp_path / "run.toml").write_text('task = "images"\ncontext = 5\n')
    message = refusal("train", "--config", tmp_path / "run.toml")
    assert "context is no option of the task images (" in message and "run.toml, line 2): it is one of gpt" in message


def test_a_run_speaks_of_images(tmp_path):
    result = co2("train", "images", "--workers", 2, "--steps", 20, "--eval-every", 10, "--out", tmp_path / "out")
    shown = words(result)
    assert "images coarse" in shown and "images/s" in shown and "tokens" not in shown and "loss" not in shown
    assert "surprise " in result.stderr and "step 10: validation surprise" in result.stderr
    assert "step 10: validation surprise" in result.stderr and ", calm 0.2500" in result.stderr
    for row in ("train surprise", "validation surprise", "calm 0.2500 -> 0.2500", "album photos, 1.0 MB",
                "It sees: a cat"):
        assert row in shown
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["task"] == "images" and summary["model"] == "coarse" and summary["unit"] == "images"
    assert summary["units"] == 2 * 20 * 8 and summary["album"]["name"] == "photos" and "corpus" not in summary
    assert summary["metrics"] == {"calm": 0.25}
    lines = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").open()]
    assert all("images_per_second" in line for line in lines)
    assert {line["step"] for line in lines if line.get("metrics") == {"calm": 0.25}} == {10, 20}


def test_plan_takes_the_shape_from_the_task():
    plan = json.loads(co2("plan", "memory", "images", "--model", "fine", "--json").stdout)
    assert plan["model"] == "fine" and plan["parameters"] == 10 * 64 + 10
    plan = json.loads(co2("plan", "memory", "images", "--pixels", 6, "--json").stdout)
    assert plan["model"] == "coarse" and plan["parameters"] == 10 * 36 + 10
    assert words(co2("plan", "memory", "images")).startswith("images coarse, 170 parameters")


def test_doctor_measures_the_task():
    text = words(co2("doctor", "images", *ALONE))
    assert "images coarse, 0.00 M parameters (90 B on the wire), batch 4 images; 1 worker" in text
    found = json.loads(co2("doctor", "images", "--workers", 2, "--pixels", 6, "--json").stdout)
    assert (found["task"], found["model"], found["pixels"]) == ("images", "coarse", 6)
    assert found["parameters"] == 370 and "context" not in found
    assert "images_per_second" in found["expected"][0]


def namespaces():
    for command in (["unshare", "--net", "true"], ["unshare", "--user", "--map-root-user", "--net", "true"]):
        try:
            if subprocess.run(command, capture_output=True, timeout=30).returncode == 0:
                return True
        except FileNotFoundError:
            pass
    return False


@pytest.mark.skipif(not namespaces(), reason="no namespaces here")
def test_lab_compares_the_task(tmp_path):
    result = co2("lab", "images", "--rates", "unlimited", "--strategies", "none,co2", "--repeats", 1, "--pixels", 6,
                 "--out", tmp_path / "out")
    shown = words(result)
    assert "the photos are here" in shown and "images/s" in shown and "train surprise" in shown
    assert "tokens" not in shown and " calm " in shown
    report = json.loads((tmp_path / "out/lab.json").read_text())
    assert report["unit"] == "images" and report["album"] == "photos"
    assert report["tables"][0]["rows"][0]["metrics"]["calm"]["median"] == 0.25
    assert report["runs"][0]["metrics"] == {"calm": 0.25}
    config = report["configurations"]["co2"]
    assert (config["task"], config["pixels"], config["flip"], config["steps"]) == ("images", 6, False, 60)
    picture = (tmp_path / "out/lab.svg").read_text()
    assert "images per second" in picture and "Surprise against time" in picture
    assert "--peers do not train the task images" in refusal("lab", "images", "--peers", "torch", "--local-steps", 4,
                                                             "--out", tmp_path / "peers")
