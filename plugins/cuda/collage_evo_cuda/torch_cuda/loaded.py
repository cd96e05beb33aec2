"""Loaded regions of PyTorch on a device: programs bound to the device's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from collage_evo.backends.variants import Arithmetic
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.torch.backend import Program
from collage_evo_cuda.torch_cuda.switches import computing_in


class LoadedOnDevice:
    """A program that computes on the device and stream of the arrays that it is bound to.

    The owner of the stream may capture a call, on a thread that has called it before. A capture would not allow the
    work of a program's first run (loading kernels, creating cuBLAS's handle, timing cuDNN's algorithms), so ``bind``
    does it, on the thread that called it. Handles and chosen algorithms belong to a thread: another one creates its
    handles in its first call, and cuDNN's heuristics choose for it.

    Args:
        program_at: the program for a device of PyTorch's, with its weights there.
        arithmetic: of the program.
    """

    def __init__(self, program_at: Callable[[Any], Program], arithmetic: Arithmetic) -> None:
        self.capturable = False
        self._program_at = program_at
        self._arithmetic = arithmetic
        self._pool: Any = None

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
        import torch

        input_tensors, output_tensors = ([torch.from_dlpack(array) for array in side] for side in (inputs, outputs))
        place = output_tensors[0].device
        on_gpu = place.type == "cuda"
        stream = partial(_on_stream, outputs[0].stream, place) if on_gpu else nullcontext
        with torch.no_grad(), computing_in(self._arithmetic, search=True), stream():
            program = self._program_at(place)
            # On zeros, since the arrays may hold invalid indices. Outside the pool below: weights and cuBLAS's
            # workspace outlive it, and timing cuDNN's algorithms fails in it, because that empties the cache, which
            # PyTorch refuses while a pool is in use.
            program(*(torch.zeros_like(tensor) for tensor in input_tensors))
        if on_gpu:
            # Frees the memory of the algorithms' trials, for other libraries too.
            torch.cuda.synchronize(place)
            torch.cuda.empty_cache()
            self._pool = self._pool or torch.cuda.MemPool()
        self.capturable = on_gpu
        # Captured calls write to the same addresses again, so no other allocation may get these. The pool's memory
        # from an earlier run is enough for the next: PyTorch requests none from the driver, as a capture demands.
        memory = partial(torch.cuda.use_mem_pool, self._pool, place) if on_gpu else nullcontext
        scopes = (torch.no_grad, partial(computing_in, self._arithmetic), stream, memory)
        return partial(_enqueue, scopes, program, input_tensors, output_tensors)


@contextmanager
def _on_stream(address: int, place: Any) -> Iterator[None]:
    import torch

    with torch.cuda.device(place), torch.cuda.stream(torch.cuda.ExternalStream(address, place)):
        yield


def _enqueue(
    scopes: Sequence[Callable[[], AbstractContextManager[Any]]],
    program: Program,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
) -> None:
    no_grad, arithmetic, stream, memory = scopes
    with no_grad(), arithmetic(), stream(), memory():
        # The copy converts half precision to float32.
        for target, tensor in zip(outputs, program(*inputs), strict=True):
            target.copy_(tensor, non_blocking=True)
