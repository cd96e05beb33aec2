"""Networks exported from PyTorch: both exporters, static and dynamic axes, several opsets, types and file layouts."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from corpus.entry import Draw, below, filled, normal
from corpus.made import Made
from corpus.made_nets import CachedDecoder, ConvNet, Detector, GatedConvNet, GreedyDecoder, Recurrent, UNet

Axes = Mapping[str, Mapping[int, str]]
Draws = Mapping[str, Draw]
BATCH: Axes = {"x": {0: "batch"}}
IMAGE: Axes = {"x": {0: "batch", 2: "height", 3: "width"}}


def models() -> Iterator[Made]:
    """Every export of this module."""
    yield from _images()
    yield from _sequences()
    yield from _layouts()


def torchscript(net: nn.Module, draws: Draws, opset: int, axes: Axes | None = None, **options: Any) -> Made:
    """The old exporter; the caller names it."""

    def save(path: Path) -> None:
        torch.onnx.export(
            net.eval(), _examples(draws), str(path), input_names=list(draws), opset_version=opset,
            dynamic_axes=axes and {name: dict(dims) for name, dims in axes.items()}, dynamo=False, **options,
        )  # fmt: skip

    return Made("", f"torch {torch.__version__}, TorchScript exporter, opset {opset}", save, draws)


def dynamo(net: nn.Module, draws: Draws, opset: int, axes: Axes | None = None, **options: Any) -> Made:
    """The new exporter; the caller names it."""

    def save(path: Path) -> None:
        names: dict[str, Any] = {}
        shapes = None
        if axes is not None:
            shapes = [
                {dim: names.setdefault(label, torch.export.Dim.DYNAMIC) for dim, label in axes.get(name, {}).items()}
                for name in draws
            ]
        torch.onnx.export(
            net.eval(), _examples(draws), str(path), input_names=list(draws), opset_version=opset,
            dynamic_shapes=tuple(shapes) if shapes else None, dynamo=True, verbose=False,
            **{"external_data": False, **options},
        )  # fmt: skip

    return Made("", f"torch {torch.__version__}, dynamo exporter, opset {opset}", save, draws)


def named(name: str, made: Made) -> Made:
    return Made(f"torch-{name}", made.source, made.save, made.inputs)


def exported(net: nn.Module, draws: Draws, opset: int = 17, axes: Axes | None = None) -> onnx.ModelProto:
    """As a model in memory, for tools that work on files."""
    file = io.BytesIO()
    torch.onnx.export(
        net.eval(), _examples(draws), file, input_names=list(draws), opset_version=opset, dynamo=False,
        dynamic_axes=axes and {name: dict(dims) for name, dims in axes.items()},
    )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def _examples(draws: Draws) -> tuple[torch.Tensor, ...]:
    made = []
    for draw in draws.values():
        if draw.high is not None:
            made.append(torch.randint(0, draw.high, draw.shape))
        elif draw.value is not None:
            made.append(torch.full(draw.shape, int(draw.value)))
        else:
            made.append(torch.randn(draw.shape))
    return tuple(made)


def _images() -> Iterator[Made]:
    image = {"x": normal(1, 3, 96, 96)}
    for opset in (9, 11, 13, 17):
        yield named(f"convnet-ts{opset}", torchscript(seeded(ConvNet), image, opset))
    yield named("convnet-ts11-batch", torchscript(seeded(ConvNet), image, 11, BATCH))
    yield named("convnet-ts17-unfolded", torchscript(seeded(ConvNet), image, 17, do_constant_folding=False,
                training=torch.onnx.TrainingMode.PRESERVE))  # fmt: skip
    pair = {"x": normal(2, 3, 96, 96)}
    for opset in (18, 20):
        yield named(f"convnet-dynamo{opset}", dynamo(seeded(ConvNet), image, opset))
        yield named(f"convnet-dynamo{opset}-batch", dynamo(seeded(ConvNet), pair, opset, BATCH))
    yield named("gated-ts14", torchscript(seeded(GatedConvNet), image, 14))
    yield named("unet-ts11-image", torchscript(seeded(UNet), image, 11, IMAGE))
    yield named("unet-ts16", torchscript(seeded(UNet), image, 16))
    yield named("unet-dynamo18-image", dynamo(seeded(UNet), {"x": normal(2, 3, 96, 128)}, 18, IMAGE))
    yield named("detector-nms-ts14", torchscript(seeded(Detector), image, 14))
    yield named("detector-nms-ts17-image", torchscript(seeded(Detector), image, 17, IMAGE))


def _sequences() -> Iterator[Made]:
    frames, time = {"x": normal(2, 40, 24)}, {"x": {0: "batch", 1: "time"}}
    for kind in ("LSTM", "GRU", "RNN"):
        net = seeded(Recurrent, kind)
        yield named(f"{kind.lower()}-ts14", torchscript(net, frames, 14))
        yield named(f"{kind.lower()}-ts17-time", torchscript(net, frames, 17, time))
    yield named("lstm-dynamo18", dynamo(seeded(Recurrent, "LSTM"), frames, 18))
    with_cache = {"ids": below(100, 1, 1), "cache_k": normal(2, 1, 4, 7, 16), "cache_v": normal(2, 1, 4, 7, 16)}
    cache: Axes = {name: {1: "batch", 3: "past"} for name in ("cache_k", "cache_v")}
    step = {"ids": {0: "batch", 1: "length"}}
    yield named("decoder-cache-ts17", torchscript(seeded(CachedDecoder), with_cache, 17))
    yield named("decoder-cache-ts17-axes", torchscript(seeded(CachedDecoder), with_cache, 17, {**step, **cache}))
    yield named("decoder-cache-dynamo18-axes", dynamo(seeded(CachedDecoder), with_cache, 18, cache))
    empty = normal(2, 1, 4, 0, 16)
    prompt = {"ids": below(100, 1, 5), "cache_k": empty, "cache_v": empty}
    first = torchscript(seeded(CachedDecoder), with_cache, 17, {**step, **cache})
    yield Made("torch-decoder-cache-empty", first.source + ", an empty cache", first.save, prompt)
    greedy = {"state": normal(1, 32), "most": filled(12)}
    yield named("greedy-loop-ts16", torchscript(torch.jit.script(seeded(GreedyDecoder)), greedy, 16))


def _layouts() -> Iterator[Made]:
    image = {"x": normal(1, 3, 96, 96)}
    yield named("convnet-dynamo18-external", dynamo(seeded(ConvNet), image, 18, external_data=True))
    with_weights = torchscript(seeded(ConvNet), image, 11, keep_initializers_as_inputs=True)
    yield named("convnet-ts11-weights-as-inputs", with_weights)
    yield Made("torch-mlp-float64-ts17", "torch, TorchScript exporter, float64", _double, {})
    yield Made("torch-convnet-half-ts17", "torch, TorchScript exporter, net.half()", _half, {})


def _double(path: Path) -> None:
    net = seeded(nn.Sequential, nn.Linear(64, 128), nn.Tanh(), nn.LayerNorm(128), nn.Linear(128, 10)).double()
    torch.onnx.export(net, (torch.randn(4, 64).double(),), str(path), dynamo=False, opset_version=17)


def _half(path: Path) -> None:
    net = seeded(ConvNet).half().eval()
    torch.onnx.export(net, (torch.randn(1, 3, 96, 96).half(),), str(path), dynamo=False, opset_version=17)


def seeded(make: Callable[..., nn.Module], *arguments: object) -> nn.Module:
    """With the same random weights each time, and running statistics that are not the trivial ones."""
    torch.manual_seed(0)
    net = make(*arguments)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return net.eval()


