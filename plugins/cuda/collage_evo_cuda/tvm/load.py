"""Loading of a piece built for a GPU: calls that only launch kernels on tensors with fixed addresses."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from collage_evo.backends.tvm.plain.piece import load_library
from collage_evo.errors import InputError, UnavailableError
from collage_evo.files import BUILD_ANEW, read_json, reading
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.dlpack import CUDA
from collage_evo_cuda.tvm.build import HOST, KERNELS, PROGRAM, WEIGHTS
from collage_evo_cuda.tvm.compiler import find_runtime
from collage_evo_cuda.tvm.program import INPUT, OUTPUT, WEIGHT, Program, View


class CudaExecutable:
    """A piece on TVM's CUDA runtime, which works in the device's primary context."""

    capturable = True  # a call only launches on fixed addresses: it does not allocate, copy on the host or wait

    def __init__(self, folder: Path) -> None:
        """Load the files in ``folder``.

        Raises:
            UnavailableError: TVM's CUDA runtime cannot be loaded.
            InputError: the files are not those of ``build``.
        """
        self._tvm = load_runtime()
        self._program = read_json(folder / PROGRAM, Program, BUILD_ANEW)
        with reading(folder / WEIGHTS, BUILD_ANEW), np.load(folder / WEIGHTS, allow_pickle=False) as weights:
            self._weights = [weights[str(number)] for number in range(len(weights.files))]
        self._kernels = self._load_kernels(folder)

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
        """A call that launches the kernels in order on the arrays' stream, with private memory between them."""
        from tvm_ffi import use_raw_stream

        arrays = (*inputs, *outputs)
        if any(array.place[0] != CUDA for array in arrays):
            raise InputError("TVM's kernels for CUDA run on memory of a CUDA device only")
        arrays_of = {INPUT: inputs, OUTPUT: outputs}
        place, stream = arrays[0].place, arrays[0].stream
        device = self._tvm.device("cuda", place[1])
        scratch = self._tvm.runtime.empty((max(1, self._program.scratch_bytes),), "uint8", device)
        weights = [self._tvm.runtime.tensor(weight, device) for weight in self._weights]

        def tensor(view: View) -> Any:
            if view.kind == WEIGHT:
                return weights[view.index]
            if view.kind in arrays_of:
                array = arrays_of[view.kind][view.index]
                if array.nbytes != view.nbytes:
                    raise InputError(f"the piece was built for {view.kind} {view.index} of {view.nbytes} bytes")
                pointer, owner = array.pointer, array.owner
            else:
                pointer, owner = scratch.data_ptr() + view.index, scratch
            return self._tvm.runtime.from_dlpack(DeviceArray(pointer, view.shape, view.dtype, place, stream, owner))

        calls = [(self._kernels[step.function], [tensor(v) for v in step.tensors]) for step in self._program.steps]
        here = use_raw_stream(device, stream)  # the stream of launches during a call

        def run() -> None:
            with here:
                for function, tensors in calls:
                    function(*tensors)

        return run

    def _load_kernels(self, folder: Path) -> Any:
        """Load the kernels: TVM requests their compilation on loading, and gets the code compiled ahead of time."""
        with kernels_compiled_by(lambda source: (folder / KERNELS).read_bytes()):
            return load_library(folder / HOST)


def load_runtime() -> Any:
    """TVM with its CUDA runtime, which needs CUDA's own, also from pip's folder, where the system does not look.

    Raises:
        UnavailableError: it does not load; the message names the missing library.
    """
    runtime = find_runtime()
    if runtime is not None:
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    import tvm

    if tvm.get_global_func("device_api.cuda", allow_missing=True) is None:
        # TVM tried on import, perhaps for the processor and before CUDA's runtime was loaded.
        try:
            ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"))
        except OSError as error:
            raise UnavailableError(f"TVM's CUDA runtime does not load: {error}") from None
    return tvm


_LOCK = Lock()
"""TVM has one compiler of kernels for all threads."""


@contextlib.contextmanager
def kernels_compiled_by(compiler: Callable[[str], bytes]) -> Iterator[None]:
    """Let TVM compile CUDA C by ``compiler`` within the context."""
    import tvm_ffi
    from tvm.support import nvcc

    name = "tvm_callback_cuda_compile"
    with _LOCK:
        tvm_ffi.register_global_func(name, compiler, override=True)
        try:
            yield
        finally:
            tvm_ffi.register_global_func(name, nvcc.tvm_callback_cuda_compile, override=True)
