"""Reference inputs and outputs, and what a reference run recorded, as files for the measuring processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collage_evo.files import reading
from collage_evo.graph.values import read_values, save_values

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


def read_recorded(path: Path) -> dict[str, Any]:
    """What a reference run recorded, by tensor; nothing where there is no file.

    Raises:
        DamagedFile: it holds something else.
    """
    if not path.is_file():
        return {}
    with reading(path, WRITTEN_AGAIN):
        return read_values(path).get(RECORDED, {})
