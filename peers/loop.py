"""What a worker does again and again, whatever the strategy: src/train/loop.cc."""

import torch

from data import Windows
from optimizer import set_rate
from strategies import Strategy


def take_step(config: dict, windows: Windows, strategy: Strategy, step: int, rate: float) -> float:
    """One optimizer step, the `step`-th from 0; returns this worker's mean loss."""
    context, passes = strategy.context, config["accumulation_steps"]
    set_rate(context.optimizer, rate)
    context.optimizer.zero_grad()
    total = 0.0
    for number in range(passes):
        loss = strategy.module(*windows.training(config["seed"], context.rank, step * passes + number, config["batch"]))
        strategy.backward(loss if passes == 1 else loss / passes, last=number + 1 == passes)
        total += loss.item() / passes
    strategy.step()
    return total


@torch.no_grad()
def validation_sums(model: torch.nn.Module, batches: list) -> torch.Tensor:
    """The sum of the losses of all tokens, and their number, with the parameters that are in the model now."""
    sums = torch.zeros(2, dtype=torch.float64)
    for tokens, targets in batches:
        sums += torch.tensor([tokens.numel() * model(tokens, targets).item(), tokens.numel()], dtype=torch.float64)
    return sums
