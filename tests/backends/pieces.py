"""Models as pieces of a backend: built, loaded and run in this process, or compiled whole for a session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Backend, BuildFailure, Built, Target
from collage_evo.backends.registry import get_backend
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Tensor
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference, reference_outputs
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from collage_evo.testing import examine

TARGET = Target()


def usable(name: str) -> Backend:
    """The backend; where its library is not installed, the test is skipped."""
    backend = get_backend(name)
    if not backend.probe().available:
        pytest.skip(backend.probe().reason)
    return backend


def borders(model: onnx.ModelProto) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs and the outputs of ``model``."""
    return examine.borders(build_graph(model))


def build(backend: Backend, model: onnx.ModelProto, folder: Path, variant: str = "default") -> Built | BuildFailure:
    folder.mkdir(exist_ok=True)
    return backend.build(model, TARGET, backend.builder(backend.variant(variant)), folder)


def loaded(backend: Backend, model: onnx.ModelProto, folder: Path, variant: str = "default") -> Any:
    """The piece that was built of ``model`` in ``folder``."""
    return backend.load(folder, TARGET, backend.variant(variant), *borders(model))


def run(backend: Backend, model: onnx.ModelProto, folder: Path, variant: str = "default") -> list[np.ndarray]:
    """Outputs for random inputs of the piece that was built of ``model`` in ``folder``."""
    feeds, (inputs, made) = random_inputs(model, 0), borders(model)
    arrays = [np.zeros(tensor.shape, tensor.dtype) for tensor in made]
    loaded(backend, model, folder, variant).bind([feeds[tensor.name] for tensor in inputs], arrays)()
    return arrays


def outputs(backend: Backend, model: onnx.ModelProto, folder: Path, variant: str = "default") -> list[np.ndarray]:
    """The same of ``model``, which is built first."""
    built = build(backend, model, folder, variant)
    assert isinstance(built, Built), built.reason
    return run(backend, model, folder, variant)


def error(model: onnx.ModelProto, found: list[np.ndarray]) -> float:
    """Relative error of what :func:`run` found."""
    return relative_error(found, plain(Reference(model).run(random_inputs(model, 0)))).relative


def compiled(model: onnx.ModelProto, backend: str, cache: Path) -> Program:
    """``model`` as a user's file that the backend is to run whole."""
    usable(backend)
    return Compiler(TARGET, PieceCache(cache, 2**30)).whole(model, backend, "default")


def require_right(model: onnx.ModelProto, backend: str, feeds: Mapping[str, np.ndarray], cache: Path) -> None:
    """Require that the backend takes ``model`` whole, and gives the reference's outputs to the bit."""
    with Session([compiled(model, backend, cache)], TARGET) as session:
        np.testing.assert_array_equal(session.run(None, feeds)[0], reference_outputs(model, dict(feeds))[0])
