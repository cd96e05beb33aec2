"""Loader of one ONNX file in ONNX Runtime, from a folder and the piece's entry in pipeline.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np


class Piece:
    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        import onnxruntime as ort

        options = session_options(manifest["settings"])
        path = str(folder / manifest["files"][0])
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs, self._outputs = manifest["inputs"], manifest["outputs"]

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], object]:
        """A call that reads and writes these arrays in place."""
        binding = self._session.io_binding()
        for name, array in zip(self._inputs, inputs, strict=True):
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name, array in zip(self._outputs, outputs, strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return partial(self._session.run_with_iobinding, binding)

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Outputs of open shapes, which the library allocates."""
        outputs: Sequence[np.ndarray] = self._session.run(self._outputs, dict(zip(self._inputs, inputs, strict=True)))
        return outputs


def session_options(settings: Mapping[str, str]) -> Any:
    """Session options by name; names with a dot are configuration entries."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = int(settings["intra_op_num_threads"])
    options.inter_op_num_threads = int(settings["inter_op_num_threads"])
    options.execution_mode = getattr(ort.ExecutionMode, settings["execution_mode"])
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, settings["graph_optimization_level"])
    options.enable_mem_pattern = settings.get("enable_mem_pattern") != "0"
    options.log_severity_level = 4  # what it would log as an error, it raises too
    for name, value in settings.items():
        if "." in name:
            options.add_session_config_entry(name, value)
    return options


def cpp_flags(links: Path) -> list[str]:
    """Headers come with a release: the wheel has only the library, under a name with its full version.

    ``links``: a folder for a link of the name that programs look for.
    """
    import onnxruntime as ort

    home = Path(os.environ.get("ONNXRUNTIME_HOME", "/usr"))
    header = "onnxruntime_cxx_api.h"
    places = (home / "include", home / "include" / "onnxruntime")
    include = next((place for place in places if (place / header).exists()), None)
    if include is None:
        raise FileNotFoundError(f"no {header}: set ONNXRUNTIME_HOME to an unpacked release, which has it in include/")
    library = home / "lib" / "libonnxruntime.so"
    if not library.exists():
        library = links / "libonnxruntime.so.1"
        links.mkdir(exist_ok=True)
        library.unlink(missing_ok=True)
        library.symlink_to(next(iter((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"))))
    return ["-I", str(include), str(library), f"-Wl,-rpath,{library.parent}"]
