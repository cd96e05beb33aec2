"""Reference inputs and outputs, and recorded tensors of a reference run, as files for the worker processes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collage_evo.errors import InputError
from collage_evo.files import reading
from collage_evo.graph.check.nonfinite import spoiled
from collage_evo.graph.ir.values import plain, read_values, save_values
from collage_evo.runtime.timing import TimedInputs

if TYPE_CHECKING:
    import onnx

Reference = tuple[dict[str, Any], dict[str, Any]]
"""Inputs and their expected outputs, by name."""
WEIGHTS = "weights"
"""The group of values that holds the weights of timed inputs."""
WRITTEN_AGAIN = "resume the run, which writes it again"
RECORDED = "run"
"""The group of values that holds a run's tensors."""


def write_references(
    path: Path, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], weights: Sequence[float] = (1.0,)
) -> None:
    """Write reference inputs and outputs for the worker processes; the first ones are timed, with ``weights``."""
    groups: dict[str, Mapping[str, Any]] = {WEIGHTS: {WEIGHTS: np.array(weights)}}
    groups |= {f"in{index}": feeds for index, (feeds, _) in enumerate(pairs)}
    groups |= {f"out{index}": outputs for index, (_, outputs) in enumerate(pairs)}
    save_values(path, groups)


def read_references(path: Path) -> list[Reference]:
    """Read the file of :func:`write_references`.

    Raises:
        DamagedFile: its content is something else.
    """
    with reading(path, WRITTEN_AGAIN):
        groups = read_values(path)
        count = sum(group.startswith("out") for group in groups)
        return [(groups.get(f"in{index}", {}), groups[f"out{index}"]) for index in range(count)]


def read_timed(path: Path) -> TimedInputs:
    """The inputs on which whole models are timed. Raises as :func:`read_references`."""
    with reading(path, WRITTEN_AGAIN):
        groups = read_values(path)
        weights = groups[WEIGHTS][WEIGHTS].tolist()
        return TimedInputs(tuple(groups.get(f"in{index}", {}) for index in range(len(weights))), tuple(weights))


def nonfinite_references(
    model: onnx.ModelProto, feeds: Mapping[str, Any], names: tuple[Sequence[str], Sequence[str]], threads: int
) -> list[Reference]:
    """``feeds`` with NaN or infinity in them, and the outputs of ``model`` for these; ``names`` names inputs and
    outputs."""
    from collage_evo.graph.reference.reference import Reference as Model  # few processes need it

    loaded, (inputs, outputs) = Model(model, threads), names
    references = []
    for values in spoiled(feeds).values():
        # inputs that the model rejects, such as an index of NaN, are no reference
        with contextlib.suppress(InputError):
            expected = dict(zip(outputs, plain(loaded.run(values)), strict=True))
            references.append((dict(zip(inputs, values.values(), strict=True)), expected))
    return references


def read_recorded(path: Path) -> dict[str, Any]:
    """The recorded tensors of a reference run, by name; empty if there is no file.

    Raises:
        DamagedFile: its content is something else.
    """
    if not path.is_file():
        return {}
    with reading(path, WRITTEN_AGAIN):
        return read_values(path).get(RECORDED, {})
