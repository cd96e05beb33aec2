"""Reference inputs and outputs, and what a reference run recorded, as files for the measuring processes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collage_evo.errors import InputError
from collage_evo.files import reading
from collage_evo.graph.nonfinite import spoiled
from collage_evo.graph.values import plain, read_values, save_values

if TYPE_CHECKING:
    import onnx

Reference = tuple[dict[str, Any], dict[str, Any]]
"""Inputs and the outputs that they ought to give, by name."""
WRITTEN_AGAIN = "resume the run, which writes it again"
RECORDED = "run"
"""The group of values under which a run's tensors are kept."""


def write_references(path: Path, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
    """Keep reference inputs and outputs for the measuring processes."""
    groups = {f"in{index}": feeds for index, (feeds, _) in enumerate(pairs)}
    groups |= {f"out{index}": outputs for index, (_, outputs) in enumerate(pairs)}
    save_values(path, groups)


def read_references(path: Path) -> list[Reference]:
    """What :func:`write_references` wrote.

    Raises:
        DamagedFile: it holds something else.
    """
    with reading(path, WRITTEN_AGAIN):
        groups = read_values(path)
        count = sum(group.startswith("out") for group in groups)
        return [(groups.get(f"in{index}", {}), groups[f"out{index}"]) for index in range(count)]


def nonfinite_references(
    model: onnx.ModelProto, feeds: Mapping[str, Any], names: tuple[Sequence[str], Sequence[str]], threads: int
) -> list[Reference]:
    """``feeds`` with NaN or infinity in them, and what ``model`` makes of it; inputs and outputs go by ``names``."""
    from collage_evo.graph.reference import Reference as Model  # few processes need it

    loaded, (inputs, outputs) = Model(model, threads), names
    found = []
    for given in spoiled(feeds).values():
        with contextlib.suppress(InputError):  # what the model does not take, such as an index of NaN, is no standard
            made = plain(loaded.run(given))
            found.append((dict(zip(inputs, given.values(), strict=True)), dict(zip(outputs, made, strict=True))))
    return found


def read_recorded(path: Path) -> dict[str, Any]:
    """What a reference run recorded, by tensor; nothing where there is no file.

    Raises:
        DamagedFile: it holds something else.
    """
    if not path.is_file():
        return {}
    with reading(path, WRITTEN_AGAIN):
        return read_values(path).get(RECORDED, {})
