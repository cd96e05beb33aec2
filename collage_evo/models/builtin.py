"""Built-in models: ``builtin:NAME`` or ``builtin:NAME?key=value&key=value``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import parse_qsl

import onnx

from collage_evo.errors import InputError
from collage_evo.models.bert import bert
from collage_evo.models.convnets import dcgan, mobilenet_v2, resnet3d_18, resnet3d_50, resnext50_32x4d
from collage_evo.models.inception import inception_v3
from collage_evo.models.nasnet import nasnet_a
from collage_evo.models.two_tower import two_tower
from collage_evo.models.zoo import zoo_model

PREFIX = "builtin:"


@dataclass(frozen=True)
class Builtin:
    """A model made from a seed: its description, its function, its integer parameters and their defaults."""

    description: str
    make: Callable[..., onnx.ModelProto]

    @property
    def parameters(self) -> Mapping[str, int]:
        found = inspect.signature(self.make).parameters.values()
        return {p.name: p.default for p in found if p.name not in {"name", "seed"}}


def _zoo(name: str, description: str) -> Builtin:
    return Builtin(description, partial(zoo_model, name))


BUILTINS: Mapping[str, Builtin] = {
    "resnet50": _zoo("resnet50", "ResNet-50, image 224x224"),
    "densenet121": _zoo("densenet121", "DenseNet-121, image 224x224"),
    "inception_v1": _zoo("inception_v1", "Inception v1 (GoogLeNet), image 224x224"),
    "inception_v2": _zoo("inception_v2", "Inception v2, image 224x224"),
    "inception_v3": Builtin("Inception v3, image size x size", inception_v3),
    "shufflenet": _zoo("shufflenet", "ShuffleNet v1, image 224x224"),
    "squeezenet": _zoo("squeezenet", "SqueezeNet 1.0, image 224x224"),
    "vgg19": _zoo("vgg19", "VGG-19, image 224x224"),
    "alexnet": _zoo("alexnet", "AlexNet, image 224x224"),
    "zfnet512": _zoo("zfnet512", "ZFNet-512, image 224x224"),
    "mobilenet_v2": Builtin("MobileNet v2, image size x size", mobilenet_v2),
    "resnext50_32x4d": Builtin("ResNeXt-50 32x4d, image size x size", resnext50_32x4d),
    "resnet3d_18": Builtin("3D-ResNet-18, video of frames images, size x size", resnet3d_18),
    "resnet3d_50": Builtin("3D-ResNet-50, video of frames images, size x size", resnet3d_50),
    "nasnet_a": Builtin("NASNet-A (mobile by default), image size x size", nasnet_a),
    "dcgan": Builtin("DCGAN generator, image 64x64", dcgan),
    "bert": Builtin("BERT encoder (base by default), length tokens", bert),
    "two_tower": Builtin("Two-tower recommender, layers of width, batch samples", two_tower),
}
"""Every built-in model. By default all have batch 1, static shapes and random weights."""


def make_builtin(source: str, seed: int) -> tuple[str, onnx.ModelProto]:
    """Name and model of ``source``, such as ``builtin:bert?layers=2&length=64``.

    Raises:
        InputError: no such model or parameter, or a value that is not a positive integer.
    """
    name, _, query = source.removeprefix(PREFIX).partition("?")
    if name not in BUILTINS:
        every = ", ".join(BUILTINS)
        raise InputError(f"no model {PREFIX}{name}{nearest(name, BUILTINS)}; there are: {every}")
    allowed = BUILTINS[name].parameters
    given: dict[str, int] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in allowed:
            known = ", ".join(f"{k}={v}" for k, v in allowed.items()) or "none"
            hint = nearest(key, allowed)
            raise InputError(f"{PREFIX}{name} has no parameter {key!r}{hint}; there are: {known}")
        if not value.isdecimal() or int(value) < 1:
            usual = f"{key}={allowed[key]}"
            raise InputError(f"{PREFIX}{name} has {key}={value!r}: give a positive integer, as in {usual}")
        given[key] = int(value)
    return name, BUILTINS[name].make(seed, **given)


def nearest(name: str, known: Mapping[str, object]) -> str:
    """`` (did you mean X?)``, or nothing if no known name is close."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""
