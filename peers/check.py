"""Is the peers' Python the same as co2's C++? Asked before any comparison, with the configuration of that comparison:

  parameters   as many of them
  weights      the same initial values from the same seed
  validation   the same loss on the weights that co2 exported, over the same validation windows
  first batch  the same training loss on those weights, over the first batches of two workers
  training     the same losses over a few steps of one worker, and the same validation loss after them: optimizer,
               schedule, clipping and the order of the data

Both compute in float32 with sums in different orders, which is a few times 1e-7 of a loss; another epsilon or GELU, or
one window elsewhere, is 1e-4 and more. Steps multiply the difference, as any other rounding would.
"""

import json
import pathlib
import subprocess

import torch

from data import Windows, load_corpus
from gpt import Gpt, preset
from loop import take_step, validation_sums
from optimizer import RateSchedule, make_optimizer
from strategies import Context, NoCommunication

LOSS_TOLERANCE = 1e-5  # relative
TRAINED_TOLERANCE = 1e-4  # relative, after STEPS steps
WEIGHT_TOLERANCE = 1e-6
STEPS = 4
SECONDS = 600  # for one short run of co2
NO_UPDATE = "1e-30"  # a rate that changes no weight, and biases, which start at 0, by nothing that matters
SHARED = ("task", "model", "context", "batch", "validation_share", "eval_batches", "optimizer", "learning_rate",
          "weight_decay", "beta1", "beta2", "gradient_clip", "schedule", "warmup", "final_rate", "seed",
          "accumulation_steps")


class Different(Exception):
    pass


def _co2(program: str, config_file: pathlib.Path, out: pathlib.Path, **options) -> dict:
    flags = {"strategy": "none", "eval_every": 0, "sample_bytes": 0, "out": out, **options}
    command = [program, "train", "--config", str(config_file)]
    for key, value in flags.items():
        command += [f"--{key.replace('_', '-')}", str(value)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError as error:
        raise ValueError(f"there is no program {program}: name it with --co2") from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"`{' '.join(command)}` has not ended within {SECONDS} s") from error
    if done.returncode != 0:
        raise ValueError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-2000:]}")
    return json.loads((out / "summary.json").read_text())


def _metrics(folder: pathlib.Path) -> dict[int, float]:
    """Training loss by step."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["train_loss_step"]: row["train_loss"] for row in rows}


class Check:
    def __init__(self, config: dict, program: str, out: pathlib.Path):
        self.config, self.program, self.out = config, program, out
        shape = preset(config["model"], config["context"])
        self.windows = Windows(load_corpus(config["corpus"]), config["validation_share"], shape.context)
        self.model = Gpt(shape, config["seed"])
        self.failed: list[str] = []
        # Only what both sides have: how workers synchronize is no part of this, and no option of --strategy none.
        self.config_file = out / "check.json"
        self.config_file.write_text(json.dumps(
            {**{key: config[key] for key in SHARED}, "corpus": self.windows.corpus.name}))

    def compare(self, what: str, ours: float, theirs: float, tolerance: float) -> None:
        distance = abs(ours - theirs) / max(abs(ours), 1e-12)
        good = distance <= tolerance
        print(f"{what:<24} co2 {ours:<14.8g} peers {theirs:<14.8g} relative difference {distance:.1e} "
              f"(allowed {tolerance:.0e}){'' if good else '  DIFFERENT'}", flush=True)
        if not good:
            self.failed.append(what)

    def validate(self) -> float:
        batches = self.windows.validation(self.config["eval_batches"], self.config["batch"], 0, 1)
        losses, tokens = validation_sums(self.model, batches).tolist()
        return losses / tokens

    @torch.no_grad()
    def first_losses(self, workers: int) -> float:
        total, draws = 0.0, self.config["accumulation_steps"]
        for rank in range(workers):
            for draw in range(draws):
                batch = self.windows.training(self.config["seed"], rank, draw, self.config["batch"])
                total += self.model(*batch).item()
        return total / workers / draws

    def initial(self) -> None:
        ours = _co2(self.program, self.config_file, self.out / "check-initial", workers=2, steps=1,
                    learning_rate=NO_UPDATE)
        if ours["corpus"]["sha256"] != self.windows.corpus.sha256:
            raise Different(f"co2 has read another text than the peers as corpus {ours['corpus']['name']}: SHA-256 "
                            f"{ours['corpus']['sha256']} and {self.windows.corpus.sha256}")
        self.compare("parameters", ours["parameters"], self.model.parameter_count(), 0)
        drawn = torch.cat([p.detach().clone().view(-1) for p in self.model.parameters()])
        self.model.load(self.out / "check-initial" / "model" / "model.safetensors")
        loaded = torch.cat([p.detach().view(-1) for p in self.model.parameters()])
        distance = (loaded - drawn).abs().max().item()
        print(f"{'initial weights':<24} differ by at most {distance:.1e} (allowed {WEIGHT_TOLERANCE:.0e})", flush=True)
        if distance > WEIGHT_TOLERANCE:
            self.failed.append("initial weights")
        self.compare("validation loss", ours["validation_loss"], self.validate(), LOSS_TOLERANCE)
        self.compare("loss of first batches", ours["train_loss_before"], self.first_losses(2), LOSS_TOLERANCE)

    def training(self) -> None:
        """From the weights that initial() has loaded."""
        folder = self.out / "check-training"
        ours = _co2(self.program, self.config_file, folder, workers=1, steps=STEPS)
        schedule = RateSchedule({**self.config, "steps": STEPS})
        strategy = NoCommunication(Context(self.model, make_optimizer(self.config, self.model),
                                           self.config["gradient_clip"]))
        losses = [take_step(self.config, self.windows, strategy, step, schedule.at(step)) for step in range(STEPS)]
        for step, loss in sorted(_metrics(folder).items()):
            self.compare(f"training loss, step {step}", loss, losses[step - 1], TRAINED_TOLERANCE)
        self.compare("validation loss after", ours["validation_loss"], self.validate(), TRAINED_TOLERANCE)


def run(config: dict, program: str, out: pathlib.Path) -> int:
    check = Check(config, program, out)
    try:
        check.initial()
        check.training()
    except Different as difference:
        check.failed.append(str(difference))
    if check.failed:
        print(f"the peers are not the same as co2: {'; '.join(check.failed)}. A comparison would mean nothing.")
        return 1
    print("the peers train the same model on the same data in the same way")
    return 0
