"""The optimizer and its rate as `co2 train` has them: src/train/optimizer.cc and src/train/schedule.cc."""

import math

import torch


def make_optimizer(config: dict, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Weight decay on matrices only. The fused kernels, as in ours: the fastest that eager PyTorch has."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config["weight_decay"]},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    rate, betas = config["learning_rate"], (config["beta1"], config["beta2"])
    if config["optimizer"] == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)
    if config["optimizer"] == "adam":
        return torch.optim.Adam(groups, lr=rate, betas=betas, fused=True)
    if config["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=config["beta1"], fused=True)
    raise ValueError(f"optimizer '{config['optimizer']}' is unknown to the peers; known: adamw, adam, sgd")


class RateSchedule:
    SHAPES = ("constant", "linear", "cosine")

    def __init__(self, config: dict):
        self._shape = config["schedule"]
        if self._shape not in self.SHAPES:
            raise ValueError(f"schedule '{self._shape}' is unknown to the peers; known: {', '.join(self.SHAPES)}")
        self._rate = config["learning_rate"]
        self._steps = max(config["steps"], 1)
        self._warmup = math.floor(config["warmup"] * self._steps + 0.5)
        self._final_share = config["final_rate"]

    def at(self, step: int) -> float:
        if step < self._warmup:
            return self._rate * (step + 1) / self._warmup
        if self._shape == "constant":
            return self._rate
        # 0 at the first step after the warm-up, 1 at the last step of the run.
        progress = min((step - self._warmup) / max(self._steps - 1 - self._warmup, 1), 1.0)
        remaining = 1 - progress if self._shape == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        return self._rate * (self._final_share + (1 - self._final_share) * remaining)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
