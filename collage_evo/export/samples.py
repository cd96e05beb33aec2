"""Samples for the check of plain files: inputs, the outputs of the answer's session, and their error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collage_evo.errors import CollageError
from collage_evo.graph.files import read_model
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.reference import relative_error
from collage_evo.measure.references import read_references
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import Signature
from collage_evo.target.target import Target

MOST = 2
"""Number of samples of each profile."""
_EXACT = 1e-3
"""Relative error of float32 arithmetic between processors."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class StoredSamples:
    """Inputs and outputs by name; ``tolerance``: relative error (2-norm) allowed on another machine."""

    pairs: tuple[tuple[Arrays, Arrays], ...]
    tolerance: float


def stored_samples(program: Program, target: Target, signature: Signature, works: Sequence[Path]) -> StoredSamples:
    """Outputs of ``program`` for the first reference inputs of the runs with these work directories.

    The tolerance is the answer's own error on them: another processor may round with as large differences.
    """
    pairs: list[tuple[Arrays, Arrays]] = []
    error = _EXACT
    with Session([program], target, signature) as session:
        for work in works:
            for feeds, expected in read_references(work / "reference.npz")[:MOST]:
                made = dict(zip(program.outputs, session.run(None, feeds), strict=True))
                error = max(error, *(relative_error(made[name], expected[name]).relative for name in program.outputs))
                pairs.append((feeds, made))
        pairs += _of_other_shapes(session, program, works[0])
    return StoredSamples(tuple(pairs), error)


def _of_other_shapes(session: Session, program: Program, work: Path) -> list[tuple[Arrays, Arrays]]:
    """For open shapes, a sample whose open sizes are twice those of the run, if the model accepts them."""
    if all(program.tensors[name].static for name in program.inputs):
        return []
    feeds, _ = read_references(work / "reference.npz")[0]
    known = {name: program.tensors[name].shape for name in program.inputs}
    shapes = {
        name: [2 * now if size < 0 else now for size, now in zip(known[name], value.shape, strict=True)]
        for name, value in feeds.items()
    }
    try:
        other = random_inputs(read_model(work / "dynamic.onnx"), 1, shapes)
        return [(other, dict(zip(program.outputs, session.run(None, other), strict=True)))]
    except CollageError:  # the model does not accept these sizes
        return []
