"""The tools that people would otherwise pick, each set up as its documentation says and as fast as it goes.

A strategy has the module whose forward pass gives the loss, takes the steps, and makes the workers' models equal at the
end. `context` says what it works on.
"""

import dataclasses
import datetime

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from gpt import Gpt


@dataclasses.dataclass(frozen=True)
class Context:
    """A worker is alone unless more is said."""

    model: Gpt
    optimizer: torch.optim.Optimizer
    gradient_clip: float
    rank: int = 0
    size: int = 1
    host: str = ""  # the address at which the other workers reach this one
    master: str = ""
    master_port: int = 0
    local_steps: int = 1
    patience: datetime.timedelta = datetime.timedelta()  # the longest wait for another worker


class Strategy:
    """No communication: the limit. The others change what they must."""

    local_steps = None  # as the user of co2 would read it in a summary: None where there is no such thing
    equal_at_end = False  # whether all workers have the same model after the last step as it is

    def __init__(self, context: Context):
        self.context = context
        self.module: torch.nn.Module = context.model

    def describe(self) -> dict:
        return {}

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """`last`: no further backward pass follows before step()."""
        loss.backward()

    def step(self) -> None:
        if self.context.gradient_clip > 0:
            clip_grad_norm_(self.context.model.parameters(), self.context.gradient_clip)
        self.step_optimizer()

    def step_optimizer(self) -> None:
        self.context.optimizer.step()

    def finish(self) -> None:
        """What co2's own finish() does: every worker ends with the average of the models, unless they are equal."""
        if not self.equal_at_end:
            average_parameters(self.context.model.parameters(), dist.group.WORLD)

    def close(self) -> None:
        """Ends threads and servers. Also after an error; may be called once."""


class NoCommunication(Strategy):
    def finish(self) -> None:
        pass  # each keeps its own, as with --strategy none


class Ddp(Strategy):
    equal_at_end = True
    local_steps = 1

    def __init__(self, context: Context):
        super().__init__(context)
        # Gradients live in the buckets: one copy less. Everything else is the default.
        self.module = DistributedDataParallel(context.model, gradient_as_bucket_view=True)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        self.module.require_backward_grad_sync = last  # what no_sync() does
        loss.backward()


class DdpBf16(Ddp):
    """Half the bytes, with the hook that PyTorch has for it."""

    def __init__(self, context: Context):
        super().__init__(context)
        # By its own name PyTorch refuses it without NCCL.
        def hook(group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            return default_hooks.bf16_compress_hook(group, bucket)

        self.module.register_comm_hook(dist.group.WORLD, hook)


class PostLocalSgd(Strategy):
    """PyTorch's periodic averaging. Nothing is averaged inside a host, which has one worker, so the model needs no
    DistributedDataParallel around it: that spares it the gradients' buckets."""

    def __init__(self, context: Context, steps: int):
        super().__init__(context)
        self.local_steps = context.local_steps
        self.equal_at_end = steps % context.local_steps == 0
        # It averages after the step numbers warmup_steps, warmup_steps + period, ...: with period - 1, at the end of
        # every period, and not after the first step, which would be one exchange for nothing.
        averager = averagers.PeriodicModelAverager(period=context.local_steps, warmup_steps=context.local_steps - 1)
        self._optimizer = PostLocalSGDOptimizer(context.optimizer, averager)

    def step_optimizer(self) -> None:
        self._optimizer.step()


NAMES = ("torch-none", "torch-ddp", "torch-ddp-bf16", "torch-post-local-sgd", "torchft-local-sgd", "torchft-diloco",
         "torchft-diloco-overlap", "torchft-streaming")


def make_strategy(name: str, context: Context, steps: int) -> Strategy:
    if name == "torch-none":
        return NoCommunication(context)
    if name == "torch-ddp":
        return Ddp(context)
    if name == "torch-ddp-bf16":
        return DdpBf16(context)
    if name == "torch-post-local-sgd":
        return PostLocalSgd(context, steps)
    if name not in NAMES:
        raise ValueError(f"peer '{name}' is unknown; known: {', '.join(NAMES)}")
    import torchft_strategies

    return torchft_strategies.make(name, context, steps)
