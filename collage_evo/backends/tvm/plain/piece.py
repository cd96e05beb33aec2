"""Loader of one TVM shared library, from a folder and the piece's entry in pipeline.json."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SHARE_ALL_CORES = -3
"""Thread-pool mode in which the system chooses the cores."""


class Piece:
    """A piece whose arrays begin at a multiple of 64 bytes, as the compiled code assumes."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        threads = int(manifest["settings"]["threads"])
        if threads > 1:
            os.environ.update(TVM_NUM_THREADS=str(threads), TVM_BIND_THREADS="0")
        import tvm
        from tvm import relax

        if threads > 1:
            cores = [str(core) for core in range(threads)]
            tvm.get_global_func("runtime.config_threadpool")(SHARE_ALL_CORES, threads, cores)
        self._tensor = tvm.runtime.from_dlpack
        self._machine = relax.VirtualMachine(load_library(folder / manifest["files"][0]), tvm.cpu())

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], object]:
        """A call that reads and writes these arrays in place."""
        arguments, results = ([self._tensor(array) for array in side] for side in (inputs, outputs))
        return partial(_run, self._machine["main"], arguments, results)


def load_library(path: Path) -> Any:
    """The module in a shared library.

    The system returns the first library again for a path that it has loaded, though another file may have replaced
    it, and writing into a loaded file changes the running code. So a copy with a unique name is loaded.
    """
    import tvm

    with tempfile.TemporaryDirectory(prefix="collage_evo-") as folder:
        return tvm.runtime.load_module(shutil.copyfile(path, os.path.join(folder, path.name)))


def _run(function: Callable[..., Any], arguments: Sequence[Any], results: Sequence[Any]) -> None:
    returned = function(*arguments)
    for source, target in zip(returned if len(results) > 1 else [returned], results, strict=True):
        source.copyto(target)


def cpp_flags(links: Path) -> list[str]:
    """The wheels have headers and libraries."""
    import tvm
    import tvm_ffi

    ffi, home = (Path(str(module.__file__)).parent for module in (tvm_ffi, tvm))
    libraries = [ffi / "lib" / "libtvm_ffi.so", home / "lib" / "libtvm_runtime.so"]
    paths = [f"-Wl,-rpath,{library.parent}" for library in libraries]
    return ["-I", str(ffi / "include"), "-Wl,--no-as-needed", *map(str, libraries), *paths]
