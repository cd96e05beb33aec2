"""``--shapes`` as values of the configuration's section ``model``, with or without the inputs' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from collage_evo.config_errors import explain
from collage_evo.config_model import ModelConfig, has_ranges
from collage_evo.errors import ConfigError
from collage_evo.graph.load.data import given_inputs
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.load.shapes import dynamic_inputs, written
from collage_evo.yaml_values import Refused, load_yaml

AUTO = "auto"


def shape_values(text: str | None, file: ModelFile) -> dict[str, Any]:
    """Values of keys for ``text``, which is YAML without braces, ``auto``, or the sizes of a single input.

    A name is that of an input, or that of a symbolic dimension in ``file``, which may have a size in each profile.
    Ranges such as ``1..512`` keep the names that they have.

    Raises:
        ConfigError: ``text`` is no shapes, needs names because several inputs are open, or lacks a dimension.
        InputError: the model cannot be read.
    """
    if text is None:
        return {}
    if text.strip() == AUTO:
        return {"sizes": "smallest"}
    read = _read(text)
    named: Mapping[str, Any] = {_only_open_input(text, file): read} if isinstance(read, list) else read
    if isinstance(read, dict) and not has_ranges(read):
        named = _by_dimension(text, read, file)
    try:
        return {"shapes": ModelConfig(source="any", shapes=named).shapes}
    except ValidationError as error:
        raise ConfigError(f"--{explain(error, ModelConfig)}") from None


def _by_dimension(text: str, shapes: Mapping[str, Any], file: ModelFile) -> Mapping[str, Any]:
    """``shapes`` with those of all open inputs in place of the sizes of symbolic dimensions."""
    inputs = dynamic_inputs(file.declared)
    every = (dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim)
    symbols = set(every) - {"", *given_inputs(file.declared)}
    sizes = {name: value if isinstance(value, list) else [value] for name, value in shapes.items() if name in symbols}
    if not sizes:
        return shapes
    counts = {name: len(several) for name, several in sizes.items() if len(several) != 1}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise ConfigError(f"--shapes {text!r}: the k-th sizes belong together, but {listed}: give as many for each")
    by_input = {name: shape for name, shape in shapes.items() if name not in sizes}
    for value in inputs:
        if value.name in by_input:
            continue
        declared = value.type.tensor_type.shape.dim
        dims = [sizes.get(dim.dim_param, [dim.dim_value] if dim.dim_value else []) for dim in declared]
        if not dims or not all(dims):
            raise ConfigError(f"--shapes {text!r}: give all sizes, or the shape, of {value.name}: {written(value)}")
        count = max(map(len, dims))
        several = [[dim[k % len(dim)] for dim in dims] for k in range(count)]
        by_input[value.name] = several if count > 1 else several[0]
    return by_input


def _read(text: str) -> list[Any] | dict[str, Any]:
    """Parse ``text`` as a mapping or a list."""
    stripped = text.strip()
    try:
        shapes = load_yaml(stripped if stripped.startswith(("{", "[")) else f"{{{stripped}}}")
    except Refused as error:
        raise ConfigError(f"--shapes {text!r}: {error}") from None
    except yaml.YAMLError:
        shapes = None
    if isinstance(shapes, list) or (isinstance(shapes, dict) and shapes and None not in shapes.values()):
        return shapes
    raise ConfigError(f"--shapes {text!r}: write a name and sizes for each input, as 'ids: [1, 64]', or auto")


def _only_open_input(text: str, file: ModelFile) -> str:
    """The only input that ``text`` can apply to."""
    inputs = dynamic_inputs(file.declared)
    if len(inputs) == 1:
        return inputs[0].name
    if not inputs:
        raise ConfigError(f"--shapes {text}: the model leaves no size open: leave it out")
    listed = ", ".join(f"{value.name}: {written(value)}" for value in inputs)
    example = f"{inputs[0].name}: {text.strip()}"
    raise ConfigError(f"--shapes {text}: name the inputs, as --shapes '{example}, ...'; sizes are open in {listed}")
