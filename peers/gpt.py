"""The network of src/train/gpt in Python: GPT-2 (pre-norm, tanh GELU, tied output layer, no dropout) on bytes.

Parameters have Hugging Face's names, so that a model.safetensors that `co2 train` has exported loads here. The initial
values are drawn from the same generator in the same order as ours: the same seed is the same model.
"""

import dataclasses
import math
import struct

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 256  # one token per byte
INIT_DEVIATION = 0.02


@dataclasses.dataclass(frozen=True)
class GptConfig:
    layers: int
    heads: int
    width: int
    context: int


PRESETS = {
    "nano": GptConfig(5, 4, 128, 128),
    "pico": GptConfig(2, 4, 64, 64),
    "tiny": GptConfig(6, 8, 256, 256),
    "mini": GptConfig(6, 6, 384, 256),
    "small": GptConfig(12, 12, 768, 1024),
    "medium": GptConfig(24, 16, 1024, 1024),
    "large": GptConfig(36, 20, 1280, 1024),
    "xl": GptConfig(48, 25, 1600, 1024),
    "7b": GptConfig(32, 32, 4096, 2048),
}


def preset(name: str, context: int = 0) -> GptConfig:
    """The preset of that name with its own context, or with `context` if that is not 0."""
    if name not in PRESETS:
        raise ValueError(f"model '{name}' is unknown to the peers; known: {', '.join(PRESETS)}")
    return dataclasses.replace(PRESETS[name], context=context or PRESETS[name].context)


class Conv1D(nn.Module):
    """A linear layer with its weight as [in, out], as GPT-2 stores it."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


class Attention(nn.Module):
    def __init__(self, config: GptConfig):
        super().__init__()
        self.heads = config.heads
        self.c_attn = Conv1D(config.width, 3 * config.width)
        self.c_proj = Conv1D(config.width, config.width)

    def forward(self, x, batch: int, time: int):
        width = x.size(1)
        parts = self.c_attn(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch * time, width))


class Mlp(nn.Module):
    def __init__(self, config: GptConfig):
        super().__init__()
        self.c_fc = Conv1D(config.width, 4 * config.width)
        self.c_proj = Conv1D(4 * config.width, config.width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config: GptConfig):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = Mlp(config)

    def forward(self, x, batch: int, time: int):
        x = x + self.attn(self.ln_1(x), batch, time)
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """forward(tokens, targets) is the mean cross entropy in nats per token, so that DistributedDataParallel, which
    wraps the forward pass, has all of it."""

    def __init__(self, config: GptConfig, seed: int):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, config.width),
                "wpe": nn.Embedding(config.context, config.width),
                "h": nn.ModuleList(Block(config) for _ in range(config.layers)),
                "ln_f": nn.LayerNorm(config.width),
            }
        )
        self._initialize(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def _initialize(self, random: torch.Generator):
        stack = self.transformer
        for embedding in (stack.wte, stack.wpe):
            embedding.weight.normal_(0, INIT_DEVIATION, generator=random)
        # Two residual additions per layer: their projections start smaller, so that the sum keeps its variance.
        residual = INIT_DEVIATION / math.sqrt(2.0 * self.config.layers)
        for block in stack.h:
            block.attn.c_attn.weight.normal_(0, INIT_DEVIATION, generator=random)
            block.attn.c_proj.weight.normal_(0, residual, generator=random)
            block.mlp.c_fc.weight.normal_(0, INIT_DEVIATION, generator=random)
            block.mlp.c_proj.weight.normal_(0, residual, generator=random)

    def logits(self, tokens):
        """tokens: int64 [batch, time]. Returns [batch * time, VOCABULARY]."""
        batch, time = tokens.shape
        stack = self.transformer
        x = (stack.wte(tokens) + stack.wpe.weight[:time]).view(batch * time, -1)
        for block in stack.h:
            x = block(x, batch, time)
        return F.linear(stack.ln_f(x), stack.wte.weight)

    def forward(self, tokens, targets):
        return F.cross_entropy(self.logits(tokens), targets.view(-1))

    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())

    @torch.no_grad()
    def load(self, path) -> None:
        """Takes the weights of an exported model.safetensors."""
        from safetensors.torch import load_file

        try:
            self.load_state_dict(load_file(path))
        except (RuntimeError, OSError, struct.error) as error:
            raise ValueError(f"{path} does not hold the weights of this model: {error}") from error

    def fragments(self, count: int) -> list[nn.Module]:
        """The model as `count` modules of about equal size, in the order of its layers: every parameter in one."""
        parts = [module for module in self.transformer.modules() if not list(module.children())]
        groups: list[list[nn.Module]] = [[] for _ in range(count)]
        total, before = self.parameter_count(), 0
        for part in parts:
            size = sum(p.numel() for p in part.parameters())
            groups[min(int((before + size / 2) * count / total), count - 1)].append(part)
            before += size
        if not all(groups):
            raise ValueError(f"a model with {self.config.layers} layers can't be cut into {count} fragments")
        return [nn.ModuleList(group) for group in groups]
