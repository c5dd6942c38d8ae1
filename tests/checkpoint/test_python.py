"""Hugging Face's `safetensors` and ours read each other's files, and refuse the same ones."""

import json
import os
import struct
import subprocess

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

TOOL = os.environ["CO2_SAFETENSORS_TOOL"]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2]


def copied(source, target):
    return subprocess.run([TOOL, source, target], timeout=60, capture_output=True, text=True)


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else torch.empty(0)


def test_both_ways(tmp_path):
    torch.manual_seed(1)
    tensors = {str(dtype): (3 * torch.randn(3, 5)).to(dtype) for dtype in DTYPES}
    tensors |= {"one": torch.tensor(1.5), "empty": torch.empty(3, 0), "ü \"quoted\" \\ \n 重み 🙂": torch.randn(2),
                "": torch.tensor([float("nan"), float("inf"), -0.0]), "odd": torch.ones(1, dtype=torch.uint8)}
    metadata = {"format": "pt", "a \"key\"": "ü\n", "": ""}
    save_file(tensors, tmp_path / "theirs", metadata)
    result = copied(tmp_path / "theirs", tmp_path / "ours")
    assert result.returncode == 0, result.stderr

    # Their reader refuses a view of memory that is not aligned for its dtype.
    ours = load_file(tmp_path / "ours")
    assert ours.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert ours[name].dtype == tensor.dtype and ours[name].shape == tensor.shape, name
        assert torch.equal(bits(ours[name]), bits(tensor)), name
    with safe_open(tmp_path / "ours", "pt") as file:
        assert file.metadata() == metadata


def test_nothing(tmp_path):
    save_file({}, tmp_path / "theirs")
    assert copied(tmp_path / "theirs", tmp_path / "ours").returncode == 0
    assert load_file(tmp_path / "ours") == {}


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize("header, data", [
    ({"a": F32}, 7),
    ({"a": F32}, 9),
    ({"a": F32 | {"shape": [3]}}, 8),
    ({"a": F32 | {"dtype": "F31"}}, 8),
    ({"a": F32 | {"data_offsets": [8, 0]}}, 8),
    ({"a": F32, "b": F32}, 8),
    ({"a": F32, "__metadata__": {"x": 1}}, 8),
    ([], 0),
])
def test_the_same_are_refused(tmp_path, header, data):
    text = json.dumps(header).encode()
    (tmp_path / "bad").write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    with pytest.raises(SafetensorError):
        with safe_open(tmp_path / "bad", "pt"):
            pass
    result = copied(tmp_path / "bad", tmp_path / "out")
    assert result.returncode == 4 and str(tmp_path / "bad") in result.stderr
