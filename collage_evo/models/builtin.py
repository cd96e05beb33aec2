"""Built-in models: ``builtin:NAME`` or ``builtin:NAME?key=value&key=value``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl

import onnx

from collage_evo.errors import InputError
from collage_evo.models import PREFIX
from collage_evo.models.bert import bert
from collage_evo.models.convnets import mobilenet_v2, resnet3d_18
from collage_evo.models.zoo import zoo_model

BUILTINS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "resnet50": partial(zoo_model, "resnet50"),
    "squeezenet": partial(zoo_model, "squeezenet"),
    "mobilenet_v2": mobilenet_v2,
    "resnet3d_18": resnet3d_18,
    "bert": bert,
}
"""Functions of a seed and integer parameters. By default all have batch 1, static shapes and random weights."""


def parameters_of(name: str) -> Mapping[str, int]:
    """The parameters of the built-in model ``name``, and their defaults."""
    parameters = inspect.signature(BUILTINS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in {"name", "seed"}}


def make_builtin(source: str, seed: int) -> tuple[str, onnx.ModelProto]:
    """Name and model of ``source``, such as ``builtin:bert?layers=2&length=64``.

    Raises:
        InputError: no such model or parameter, or a value that is not a positive integer.
    """
    name, _, query = source.removeprefix(PREFIX).partition("?")
    if name not in BUILTINS:
        every = ", ".join(BUILTINS)
        raise InputError(f"no model {PREFIX}{name}{nearest(name, BUILTINS)}; there are: {every}")
    allowed = parameters_of(name)
    parameters: dict[str, int] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in allowed:
            available = ", ".join(f"{k}={v}" for k, v in allowed.items()) or "none"
            hint = nearest(key, allowed)
            raise InputError(f"{PREFIX}{name} has no parameter {key!r}{hint}; there are: {available}")
        if not value.isdecimal() or int(value) < 1:
            usual = f"{key}={allowed[key]}"
            raise InputError(f"{PREFIX}{name} has {key}={value!r}: give a positive integer, as in {usual}")
        parameters[key] = int(value)
    return name, BUILTINS[name](seed=seed, **parameters)


def nearest(name: str, names: Mapping[str, object]) -> str:
    """`` (did you mean X?)``, or nothing if no known name is close."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""
