"""Models, arrays and settings in memory, given in Python, as keys and files of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from collage_evo.accuracy.budget import EXACT
from collage_evo.config import Config, read_config
from collage_evo.effort import Effort
from collage_evo.errors import InputError
from collage_evo.graph.data import write_npz
from collage_evo.graph.files import save_model
from collage_evo.graph.load import ModelFile
from collage_evo.run.directory import GIVEN
from collage_evo.yaml_values import nested

Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ModelFile
Arrays = Mapping[str, Any]
Shapes = Mapping[str, Sequence[Any]] | Literal["auto"]
Settings = Config | Mapping[str, Any] | str | os.PathLike[str]
Precision = Literal["exact", "mixed"]


def base_keys(config: Settings | None) -> dict[str, Any]:
    """The keys of a configuration in any form, nested by section.

    Raises:
        ConfigError: a key is given twice.
        InputError: no such file.
    """
    if config is None:
        return {}
    if isinstance(config, Config):
        return config.model_dump()
    return nested(config) if isinstance(config, Mapping) else read_config(os.fspath(config))


def shape_keys(shapes: Shapes | None) -> dict[str, Any]:
    """The keys for these shapes; tuples and NumPy's integers become YAML's types."""
    if shapes is None or shapes == "auto":
        return {"model.sizes": "smallest"} if shapes else {}
    given = {
        name: [list(map(int, part)) if isinstance(part, Sequence) else int(part) for part in parts]
        for name, parts in shapes.items()
    }
    return {"model.shapes": given}


def budget_keys(budget: float | str | None, precision: Precision | None, base: Mapping[str, Any]) -> dict[str, Any]:
    """The key for the error budget, from either argument; ``base`` has the configured one.

    Raises:
        InputError: they contradict each other, or ``precision`` is no such word.
    """
    if precision not in (None, "exact", "mixed"):
        raise InputError(f"precision is {precision!r}: say exact (only 32-bit floats) or mixed")
    had = budget if budget is not None else (base.get("accuracy") or {}).get("budget")
    if precision == "mixed" and had == EXACT:
        raise InputError("precision mixed needs a budget of error, and it is exact: give another, as 0.02 or 1%")
    if precision == EXACT and budget not in (None, EXACT):
        raise InputError(f"precision exact leaves no room for a budget of {budget}: give one of the two")
    chosen = EXACT if precision == EXACT else budget
    return {} if chosen is None else {"accuracy.budget": chosen}


def effort_keys(effort: Effort | None, config: Settings | None) -> dict[str, Any]:
    """The key for ``effort``.

    Raises:
        InputError: every key has a value in ``config``, so that it would change nothing.
    """
    if effort is not None and isinstance(config, Config):
        raise InputError(
            "effort says what keys are that are not given, and a Config has them all: make it with effort"
        )
    return {} if effort is None else {"effort": effort}


def text_of(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


class Given:
    """Arguments as files: objects in memory are written into the run directory, so that the run can be resumed."""

    def __init__(self, directory: Path, model: Model, inputs: Arrays | Sequence[Arrays] | None) -> None:
        """``directory``: the run's."""
        self._directory = directory.absolute() / GIVEN
        self._model = model
        self._samples = [inputs] if isinstance(inputs, Mapping) else list(inputs or ())

    @property
    def parsed(self) -> ModelFile | None:
        """The model, if the caller has parsed it already."""
        return self._model if isinstance(self._model, ModelFile) else None

    @property
    def source(self) -> str:
        """Value for ``model.source``."""
        if self.parsed is not None:
            return self.parsed.source
        if isinstance(self._model, str | os.PathLike):
            return os.fspath(self._model)
        return str(self._directory / "model.onnx")

    @property
    def data(self) -> str | None:
        """Value for ``data.source``."""
        return str(self._directory / "data") if self._samples else None

    @property
    def in_memory(self) -> tuple[str, ...]:
        """Those of the paths that :meth:`write` writes."""
        model = [self.source] if isinstance(self._model, bytes | onnx.ModelProto) else []
        return (*model, *([self.data] if self.data else []))

    def write(self) -> None:
        if isinstance(self._model, bytes | onnx.ModelProto):
            self._directory.mkdir(exist_ok=True)
            if isinstance(self._model, bytes):
                Path(self.source).write_bytes(self._model)
            else:
                save_model(self._model, Path(self.source))
        for index, sample in enumerate(self._samples):
            path = self._directory / "data" / f"{index:06d}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_npz(path, {name: np.asarray(array) for name, array in sample.items()})
