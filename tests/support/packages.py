"""Runs that ended on other processors, and packages of their answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from collage_evo.answer.delivery import MODEL
from collage_evo.backends.base import Target
from collage_evo.commands.pack import pack_artifacts
from collage_evo.hardware.processor import Processor, this_machine
from collage_evo.report.finished import RESULT, write_result
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.program import Program
from tests.support.results import result

HERE = this_machine()
LESSER = replace(HERE, cpu="a lesser one", features=frozenset())
"""This processor runs what was made there, and differs from it."""
GREATER = replace(HERE, cpu="a greater one", features=HERE.features | {"avx9000"})


def ended(
    directory: Path, machine: Processor, program: Program, baseline: Program | None = None, **info: Any
) -> Path:
    """A run that ended on ``machine`` with the answer ``program``; ``baseline``: ONNX Runtime's there."""
    info = {MODEL: {"name": "m", "sha256": "a"}, **info}
    write_artifact(directory / BEST, [Profile(program, info)], Target(machine=machine))
    write_result(directory / RESULT, result())
    if baseline is not None:
        write_artifact(directory / "baselines" / "onnxruntime.collage", [Profile(baseline)], Target(machine=machine))
    return directory


def package(root: Path, *runs: Path) -> Path:
    """A package of the runs' answers."""
    pack_artifacts(runs, root / "m.collage")
    return root / "m.collage"
