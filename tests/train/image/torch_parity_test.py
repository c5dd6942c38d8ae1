"""An exported ResNet is one of PyTorch's: the same layers in Python load it, all of it, and compute the same logits.

Usage: torch_parity_test.py PATH_TO_resnet_export_tool

Tolerance: both sides compute in float32 with the same library, but with other layouts of the weights, so sums have
another order. On logits of a few units that is about 1e-5; we allow 1e-4 relative to the largest. To show that this is
tight enough, the test also computes with mistakes that are easy to make, each of which must miss it tenfold: another
epsilon in the norms, a shortcut that skips pixels elsewhere, and a ReLU before the addition instead of after it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

TOLERANCE = 1e-4


class Block(nn.Module):
    """torchvision's BasicBlock."""

    def __init__(self, channels_in, channels, stride, offset=0, early_relu=False):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if channels_in != channels:
            self.downsample = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(channels))
        self.offset, self.early_relu = offset, early_relu

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        shortcut = x if self.downsample is None else self.downsample(x.roll(self.offset, -1))
        return torch.relu(y) + shortcut if self.early_relu else torch.relu(y + shortcut)


class ResNet(nn.Module):
    def __init__(self, blocks, **changes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        channels = 16
        for stage, width in enumerate((16, 32, 64)):
            layer = []
            for _ in range(blocks):
                layer.append(Block(channels, width, 1 if channels == width else 2, **changes))
                channels = width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(channels, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True, timeout=200)
        batch = load_file(Path(folder) / "batch.safetensors")
        weights = load_file(Path(folder) / "model/model.safetensors")

    def difference(key, training, epsilon=1e-5, **changes):
        model = ResNet(3, **changes)
        model.load_state_dict(weights)  # strict: every name has its place
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = epsilon
        with torch.no_grad():
            logits = model.train(training)(batch["images"])
        return ((logits - batch[key]).abs().max() / batch[key].abs().max()).item()

    for key, training in (("logits", False), ("logits_of_batch", True)):
        worst = difference(key, training)
        print(f"{key} differ by {worst:.1e} of the largest at most (allowed {TOLERANCE:.0e})")
        assert worst <= TOLERANCE, key
    for mistake, wrong in (("another epsilon", dict(epsilon=1e-2)), ("a shortcut elsewhere", dict(offset=1)),
                           ("an early ReLU", dict(early_relu=True)), ("statistics of the batch", dict(training=True))):
        worst = difference("logits", **{"training": False, **wrong})
        print(f"{mistake}: logits differ by {worst:.1e}")
        assert worst > 10 * TOLERANCE, mistake
    return 0


if __name__ == "__main__":
    sys.exit(main())
