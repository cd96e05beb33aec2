"""Loader of one IR file in OpenVINO, from a folder and the piece's entry in pipeline.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np


class Piece:
    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        import openvino

        self._tensor = openvino.Tensor
        # By default OpenVINO computes in bfloat16 where the processor can, and on all cores.
        self._model = openvino.Core().compile_model(str(folder / manifest["files"][0]), "CPU", manifest["settings"])

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], object]:
        """A call that reads and writes these arrays in place."""
        request = self._model.create_infer_request()
        for index, array in enumerate(inputs):
            request.set_input_tensor(index, self._tensor(array, shared_memory=True))
        for index, array in enumerate(outputs):
            request.set_output_tensor(index, self._tensor(array, shared_memory=True))
        return partial(request.infer, share_outputs=True)

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Outputs of open shapes, which the library allocates."""
        request = self._model.create_infer_request()
        request.infer(list(inputs))
        return [request.get_output_tensor(index).data.copy() for index in range(len(self._model.outputs))]


def cpp_flags(links: Path) -> list[str]:
    """The wheel has headers and libraries."""
    import openvino

    home = Path(openvino.__file__).parent
    library = next(iter((home / "libs").glob("libopenvino.so.*")))
    return ["-I", str(home / "include"), str(library), f"-Wl,-rpath,{library.parent}"]
