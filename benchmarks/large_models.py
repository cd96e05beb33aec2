"""Models of a gigabyte and more as people export them: what a run does with such files, and how long it takes.

    python benchmarks/large_models.py NAME FOLDER          # a Python with torch, torchvision and onnxscript

Writes FOLDER/model.onnx and its weights beside it, as ``torch.onnx.export`` does at opset 18. NAME is one of those
below; ``NAME?key=value`` changes sizes, which are parameters of the function of that name. Weights are random, the
same each time, and of a size at which neither activations grow nor a softmax saturates. Measure one of them by
``benchmarks/time_to_answer.py FOLDER/model.onnx``; the decoder needs shapes: ``--options "--shapes ..."``.

- ``vit_l16``: torchvision's ViT-L/16 (Dosovitskiy et al., ICLR 2021), an image of 224x224, 1.2 GB;
- ``speech_encoder``: an encoder of Whisper medium's size (Radford et al., ICML 2023, table 1), for 30 s, 1.2 GB;
- ``decoder``: a language model like Llama (Touvron et al., 2023) with grouped-query attention and a cache of keys and
  values, 2.2 GB, more than one Protobuf message holds. Tokens and cached positions may be any number.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Example:
    """A network with inputs to export it on; ``dynamic`` names the free dimensions of each input, if any has some."""

    net: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: Sequence[str]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def vit_l16(size: int = 224, layers: int = 24, width: int = 1024) -> Example:
    """Float32 ``image`` [1, 3, size, size] to ``scores`` [1, 1000]."""
    from torchvision.models import VisionTransformer

    net = VisionTransformer(size, 16, layers, num_heads=width // 64, hidden_dim=width, mlp_dim=4 * width)
    return Example(net, {"image": torch.zeros(1, 3, size, size)}, ["scores"])


def speech_encoder(frames: int = 3000, layers: int = 24, width: int = 1024, bins: int = 80) -> Example:
    """Float32 log-mel ``features`` [1, bins, frames] to ``states`` [1, frames / 2, width]."""
    return Example(SpeechEncoder(frames, layers, width, bins), {"features": torch.zeros(1, bins, frames)}, ["states"])


class SpeechEncoder(nn.Module):
    """Two convolutions, the second of which halves the frames, and blocks of a transformer."""

    def __init__(self, frames: int, layers: int, width: int, bins: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(bins, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(EncoderBlock(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        angles = torch.arange(frames // 2)[:, None] * frequencies(width)
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))

    def forward(self, features: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(features))))
        x = x.transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class EncoderBlock(nn.Module):
    """Self-attention and two linear layers, each after a LayerNorm and with its input added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention_norm(x)
        query, key, value = (split_heads(layer(y), 64) for layer in (self.query, self.key, self.value))
        x = x + self.out(joined_heads(functional.scaled_dot_product_attention(query, key, value)))
        return x + self.narrow(functional.gelu(self.wide(self.mlp_norm(x))))


def decoder(
    layers: int = 24, width: int = 1280, groups: int = 4, inner: int = 4096, vocabulary: int = 32_000
) -> Example:
    """Int64 ``input_ids`` and ``position_ids`` [1, sequence] to ``logits`` [1, sequence, vocabulary].

    ``past_key_values.N.key`` and ``.value`` [1, groups, past, 64] are of the tokens before, which may be none; the
    outputs ``present.N.key`` and ``.value`` are of these and of the new ones. A head has 64 channels.
    """
    tokens = {name: torch.zeros(1, 3, dtype=torch.int64) for name in ("input_ids", "position_ids")}
    kinds = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    cached = {f"past_key_values.{kind}": torch.zeros(1, groups, 5, 64) for kind in kinds}
    dynamic = {name: {1: "sequence"} for name in tokens} | {name: {2: "past"} for name in cached}
    outputs = ["logits", *(f"present.{kind}" for kind in kinds)]
    return Example(Decoder(layers, width, groups, inner, vocabulary), tokens | cached, outputs, dynamic)


class Decoder(nn.Module):
    """Embeddings, blocks of a transformer, and the logits of each next token."""

    def __init__(self, layers: int, width: int, groups: int, inner: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, groups, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.logits = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("frequencies", frequencies(64))

    def forward(self, input_ids: Tensor, position_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        angles = position_ids[:, None, :, None] * self.frequencies
        turns = torch.cat([angles, angles], -1)
        before, new = past[0].shape[2], input_ids.shape[1]
        visible = torch.arange(before + new) <= before + torch.arange(new)[:, None]
        x, present = self.embedding(input_ids), []
        for block, key, value in zip(self.blocks, past[::2], past[1::2], strict=True):
            x, *both = block(x, key, value, turns.cos(), turns.sin(), visible)
            present += both
        return self.logits(self.norm(x)), *present


class DecoderBlock(nn.Module):
    """Attention to all tokens up to this one, whose keys and values several heads share, and a gated MLP."""

    def __init__(self, width: int, groups: int, inner: int) -> None:
        super().__init__()
        self.shared = width // 64 // groups
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, 64 * groups, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(
        self, x: Tensor, past_key: Tensor, past_value: Tensor, cos: Tensor, sin: Tensor, visible: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        y = self.attention_norm(x)
        query, key, value = (split_heads(layer(y), 64) for layer in (self.query, self.key, self.value))
        key = torch.cat([past_key, rotated(key, cos, sin)], 2)
        value = torch.cat([past_value, value], 2)
        heads = functional.scaled_dot_product_attention(
            rotated(query, cos, sin), self.repeated(key), self.repeated(value), attn_mask=visible
        )
        x = x + self.out(joined_heads(heads))
        y = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y)), key, value

    def repeated(self, x: Tensor) -> Tensor:
        """A copy for each head that shares them: [1, groups, tokens, 64] to [1, heads, tokens, 64]."""
        one, groups, tokens, channels = x.shape
        wide = x[:, :, None].expand(one, groups, self.shared, tokens, channels)
        return wide.reshape(one, groups * self.shared, tokens, channels)


def frequencies(width: int) -> Tensor:
    """Of the sine and cosine of a position, for each pair of ``width`` channels."""
    return 10_000 ** (-torch.arange(0, width, 2) / width)


def split_heads(x: Tensor, channels: int) -> Tensor:
    """[1, tokens, width] to [1, heads, tokens, channels]."""
    return x.unflatten(2, (-1, channels)).transpose(1, 2)


def joined_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al., 2021), of channels half the width apart."""
    one, other = x.chunk(2, -1)
    return x * cos + torch.cat([-other, one], -1) * sin


MODELS: Mapping[str, Callable[..., Example]] = {
    "vit_l16": vit_l16, "speech_encoder": speech_encoder, "decoder": decoder
}


def randomise(net: nn.Module, seed: int = 0) -> None:
    """Random weights at which a layer's outputs are as large as its inputs."""
    random = torch.Generator().manual_seed(seed)
    for name, parameter in net.named_parameters():
        part = name.split(".")[-1]
        if parameter.ndim == 1:
            mean, deviation = (0.0, 0.05) if part.endswith("bias") else (1.0, 0.1)
        elif "embedding" in name or "token" in part:
            mean, deviation = 0.0, 1.0
        else:
            mean, deviation = 0.0, parameter[0].numel() ** -0.5
        parameter.data.normal_(mean, deviation, generator=random)


def write(source: str, folder: Path) -> Path:
    """The file of `NAME` or `NAME?key=value` in ``folder``."""
    name, _, query = source.partition("?")
    example = MODELS[name](**{key: int(value) for key, value in parse_qsl(query)})
    randomise(example.net)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    shapes = tuple(dict(example.dynamic.get(key, {})) for key in example.inputs)
    dynamic: dict[str, Any] = {}
    if example.dynamic:
        fixed = len(shapes) - sum(key.startswith("past") for key in example.inputs)
        dynamic["dynamic_shapes"] = (*shapes[:fixed], shapes[fixed:])  # the past is one argument, a tuple
    torch.onnx.export(
        example.net.eval(), tuple(example.inputs.values()), str(path), opset_version=18, dynamo=True, verbose=False,
        input_names=list(example.inputs), output_names=list(example.outputs), external_data=True, **dynamic,
    )  # fmt: skip
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    print(write(args.name, args.folder))


if __name__ == "__main__":
    main()
