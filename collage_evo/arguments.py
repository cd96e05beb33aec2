"""Arguments of a run: options as keys of its configuration, models and arrays in memory as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from collage_evo.accuracy.budget import EXACT
from collage_evo.accuracy.choose import name_of
from collage_evo.config import Config, parse_config, read_config
from collage_evo.effort import Effort
from collage_evo.errors import InputError
from collage_evo.graph.load.data import write_npz
from collage_evo.graph.load.files import save_model
from collage_evo.graph.load.load import ModelFile
from collage_evo.run.directory import IN_MEMORY
from collage_evo.yaml_values import nested

Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ModelFile
Arrays = Mapping[str, Any]
Shapes = Mapping[str, Any] | Literal["auto"]
ConfigLike = Config | Mapping[str, Any] | str | os.PathLike[str]
Precision = Literal["exact", "mixed"]


def base_keys(config: ConfigLike | None) -> dict[str, Any]:
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
    return {"model.shapes": {name: _plain(sizes) for name, sizes in shapes.items()}}


def _plain(sizes: Any) -> Any:
    """A size, a range such as ``1..512``, or a sequence of these, in YAML's types."""
    if isinstance(sizes, str):
        return sizes
    return list(map(_plain, sizes)) if isinstance(sizes, Sequence) else int(sizes)


def resolve(
    keys: Mapping[str, Any],
    options: Mapping[str, Any],
    place: str,
    *,
    budget: float | str | None = None,
    precision: Precision | None = None,
    metric: str | Callable[..., Any] | None = None,
    like: str | os.PathLike[str] | None = None,
) -> Config:
    """The configuration of a run: ``keys``, overridden by the arguments that are not None.

    Args:
        keys: from a file or from Python, nested by section.
        options: arguments that are values of keys, by dotted key.
        place: where ``keys`` are, for messages.
        budget: as in :func:`collage_evo.api.optimize`, like the next three.
        precision: another word for some budgets.
        metric: by its name, or a function.
        like: the directory of a run.

    Raises:
        ConfigError: a key is unknown or a value not allowed.
        InputError: ``budget`` and ``precision`` contradict each other, or ``precision`` is no such word.
    """
    if precision not in (None, "exact", "mixed"):
        raise InputError(f"precision is {precision!r}: use exact (float32 only) or mixed")
    if precision == EXACT and budget not in (None, EXACT):
        raise InputError(f"precision exact allows no error, but the budget is {budget}: set only one of the two")
    values = {
        **options,
        "accuracy.budget": EXACT if precision == EXACT else budget,
        "accuracy.metric": None if metric is None else name_of(metric),
        "search.like": None if like is None else os.path.abspath(like),
    }
    config = parse_config(keys, {key: value for key, value in values.items() if value is not None}, place)
    if precision == "mixed" and config.accuracy.budget == EXACT:
        raise InputError("precision mixed needs a budget of error, and it is exact: give another, as 0.02 or 1%")
    return config


def effort_keys(effort: Effort | None, config: ConfigLike | None) -> dict[str, Any]:
    """The key for ``effort``.

    Raises:
        InputError: every key has a value in ``config``, so that it would change nothing.
    """
    if effort is not None and isinstance(config, Config):
        raise InputError(
            "effort sets the defaults of missing keys, and a Config has all keys: make the Config with effort"
        )
    return {} if effort is None else {"effort": effort}


class ModelAndData:
    """A model and samples as files: objects in memory are written into the run directory, so that the run can be
    resumed."""

    def __init__(self, directory: Path, model: Model, inputs: Arrays | Sequence[Arrays] | None = None) -> None:
        """``directory``: the run's."""
        self._directory = directory.absolute() / IN_MEMORY
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
                save_model(self._model, Path(self.source), in_one=True)
        for index, sample in enumerate(self._samples):
            path = self._directory / "data" / f"{index:06d}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_npz(path, {name: np.asarray(array) for name, array in sample.items()})
