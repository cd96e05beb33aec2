"""``--shapes`` as values of the configuration's section ``model``, with or without the inputs' names."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import ValidationError

from collage_evo.config_errors import explain
from collage_evo.config_model import ModelConfig
from collage_evo.errors import ConfigError
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.load.shapes import dynamic_inputs, written
from collage_evo.yaml_values import Refused, load_yaml

AUTO = "auto"


def shape_values(text: str | None, file: ModelFile) -> dict[str, Any]:
    """Values of keys for ``text``, which is YAML without braces, ``auto``, or the sizes of a single input.

    The model in ``file`` is read if names are missing.

    Raises:
        ConfigError: ``text`` is no shapes, or needs names because several inputs are open.
        InputError: the model cannot be read.
    """
    if text is None:
        return {}
    if text.strip() == AUTO:
        return {"sizes": "smallest"}
    shapes = _read(text)
    if isinstance(shapes, list):
        shapes = {_only_open_input(text, file): shapes}
    try:
        return {"shapes": ModelConfig(source="any", shapes=shapes).shapes}
    except ValidationError as error:
        raise ConfigError(f"--{explain(error, ModelConfig)}") from None


def _read(text: str) -> object:
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
