"""Loader of one PyTorch archive, from a folder and the piece's entry in pipeline.json."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np


class Piece:
    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        import torch

        settings, path = manifest["settings"], str(folder / manifest["files"][0])
        torch.set_num_threads(int(settings["threads"]))
        compiled = settings["compiled"] == "1"
        self._program = torch._inductor.aoti_load_package(path) if compiled else torch.export.load(path).module()

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], object]:
        """A call that reads and writes these arrays in place."""
        return bound(self._program, inputs, outputs)


def bound(
    program: Callable[..., Any], inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> Callable[[], None]:
    """A call of ``program`` on these arrays, to which it holds no reference."""
    import torch

    with warnings.catch_warnings():
        # PyTorch warns of write-protected arrays. The program does not write on its inputs.
        warnings.simplefilter("ignore")
        tensors = [torch.from_numpy(array) for array in inputs]
    return partial(_run, torch.no_grad, program, tensors, [torch.from_numpy(array) for array in outputs])


def _run(
    no_grad: Callable[[], Any], program: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> None:
    with no_grad():
        for target, output in zip(outputs, program(*inputs), strict=True):
            target.copy_(output)


def cpp_flags(links: Path) -> list[str]:
    """The wheel has headers and libraries."""
    import torch

    home = Path(torch.__file__).parent
    include = home / "include"
    libraries = [str(home / "lib" / f"lib{name}.so") for name in ("torch", "torch_cpu", "c10")]
    headers = ["-I", str(include), "-I", str(include / "torch" / "csrc" / "api" / "include")]
    return [*headers, "-Wl,--no-as-needed", *libraries, f"-Wl,-rpath,{home / 'lib'}"]
