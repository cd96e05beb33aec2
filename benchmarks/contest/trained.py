"""Tasks with networks trained here, each in about a minute, on data that packages ship.

A convolutional net on scikit-learn's digits, and a small transformer that continues the text of Python's
documentation strings letter by letter. Needs PyTorch and scikit-learn.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from contest.task import Task, write_task
from contest.texts import documentation

SCALE = 4
"""By how much the digits' eight by eight pixels are enlarged."""
DIGITS_EPOCHS, DIGITS_BATCH = 12, 50
LENGTH, VOCABULARY = 128, 128
"""Characters that the transformer sees at once; ASCII."""
WIDTH, HEADS, LAYERS = 128, 4, 2
TEXT_STEPS, TEXT_BATCH = 600, 16

Batch = Callable[[np.ndarray], tuple[torch.Tensor, torch.Tensor]]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def make_digits(task: Task, samples: int, held_out: int) -> None:
    """Handwritten digits; label ``label``. What is neither given nor held out trains the net."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    pixels = images.reshape(-1, 1, 8, 8)[order].repeat(SCALE, 2).repeat(SCALE, 3).astype(np.float32) / 16.0
    labels = labels[order].astype(np.int64)
    _begin()
    net = _digits_net()
    held, used = len(images) - held_out, len(images) - held_out - samples
    rng = np.random.default_rng(1)
    parts = [part for _ in range(DIGITS_EPOCHS) for part in _batches(rng.permutation(used), DIGITS_BATCH)]
    data = (torch.from_numpy(pixels), torch.from_numpy(labels))
    _train(net, parts, lambda part: (data[0][part], data[1][part]), nn.CrossEntropyLoss())
    single = pixels[:, np.newaxis]
    write_task(
        task,
        _exported(net, torch.from_numpy(single[0]), "image", "scores"),
        {"image": single[used:held], "label": labels[used:held]},
        {"image": single[held:], "label": labels[held:]},
    )


def make_text(task: Task, samples: int, held_out: int) -> None:
    """Text of documentation strings; label ``next``, the character that follows each position."""
    text = np.frombuffer("\n\n".join(documentation()).encode("ascii", "ignore"), np.uint8).astype(np.int64)
    pieces = text[: len(text) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    pieces = pieces[np.random.default_rng(0).permutation(len(pieces))]
    _begin()
    net = Transformer()
    held, used = len(pieces) - held_out, len(pieces) - held_out - samples
    parts = list(np.random.default_rng(1).integers(0, used, (TEXT_STEPS, TEXT_BATCH)))
    data = torch.from_numpy(pieces)

    def by_character(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(made.flatten(0, 1), wanted.flatten())

    _train(net, parts, lambda part: (data[part, :-1], data[part, 1:]), by_character)

    def part(rows: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"tokens": rows[:, np.newaxis, :-1], "next": rows[:, 1:]}

    model = _exported(net, data[:1, :-1], "tokens", "scores")
    write_task(task, model, part(pieces[used:held]), part(pieces[held:]))


def _digits_net() -> nn.Module:
    def layer(channels: int, width: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]

    return nn.Sequential(
        *layer(1, 16), *layer(16, 32), nn.MaxPool2d(2), *layer(32, 64), nn.MaxPool2d(2), *layer(64, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


class Transformer(nn.Module):
    """Causal attention and a feed-forward part with Gelu in each layer, normalised before (Radford et al., 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        nn.init.normal_(self.characters.weight, std=0.02)  # no larger than the places, which would go unheard
        self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> Any:
        x = self.characters(tokens) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.scores(self.norm(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.threefold, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -1e4).triu(1), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        parts = self.threefold(self.before(x)).reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        weights = (parts[0] @ parts[1].transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5 + self.mask
        mixed = (weights.softmax(-1) @ parts[2]).transpose(1, 2).reshape(-1, LENGTH, WIDTH)
        x = x + self.joined(mixed)
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))


def _begin() -> None:
    """The same start each time; one thread, since two that wait for a shared core take many times as long."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


def _batches(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (order[start : start + size] for start in range(0, len(order) - size + 1, size))


def _train(net: nn.Module, parts: Sequence[np.ndarray], batch: Batch, loss: Loss) -> None:
    """A step for each of ``parts``; the rate rises and falls once (Smith and Topin, 2019)."""
    optimizer = torch.optim.AdamW(net.parameters())
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=len(parts))
    net.train()
    for part in parts:
        inputs, wanted = batch(part)
        optimizer.zero_grad()
        loss(net(inputs), wanted).backward()
        optimizer.step()
        rate.step()
    net.eval()


def _exported(net: nn.Module, sample: torch.Tensor, source: str, made: str) -> onnx.ModelProto:
    file = io.BytesIO()
    # The older exporter writes one small file without a package of its own.
    torch.onnx.export(net, (sample,), file, input_names=[source], output_names=[made], opset_version=17, dynamo=False)
    return onnx.load_from_string(file.getvalue())
