"""Engines that run the models of contestants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from native import onnxruntime_session, openvino_model

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]

ONNXRUNTIME, OPENVINO, OURS = "onnxruntime", "openvino", "collage_evo"


@dataclass(frozen=True)
class Served:
    """A model as it is served: an ONNX file, OpenVINO's own or an artifact; OpenVINO's precision hint, or none."""

    engine: str
    path: str
    hint: str = ""


def open_served(served: Served, threads: int, outputs: tuple[str, ...]) -> Run:
    """The model, ready to run; ``outputs`` are the names of its outputs in order."""
    path = Path(served.path)
    if served.engine == ONNXRUNTIME:
        return open_onnxruntime(path, threads)
    if served.engine == OPENVINO:
        return named(openvino_model(path, threads, served.hint), outputs)
    import collage_evo

    session = collage_evo.load(path)
    return lambda feeds: dict(zip(outputs, session.run(None, dict(feeds)), strict=True))


def open_onnxruntime(path: Path, threads: int) -> Run:
    """ONNX Runtime's session; 0 threads for as many as it takes by itself."""
    session = onnxruntime_session(path, threads)
    names = [value.name for value in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, dict(feeds)), strict=True))


def named(compiled: Any, outputs: tuple[str, ...]) -> Run:
    """OpenVINO's call, with the outputs' names in the ONNX file: a port may have other ones besides."""

    def run(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = compiled(dict(feeds))
        return {name: results[port] for name, port in zip(outputs, compiled.outputs, strict=True)}

    return run
