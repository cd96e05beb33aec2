"""Runs a frames plan: takes the caller's [1, C, D, H, W] buffers, gives one call that makes frame after frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.backends.ncnn.frames import Step, network_files, read_frames
from collage_evo.backends.ncnn.plain.piece import Network

_ALIGNMENT = 64
"""Bytes: ncnn reads packed elements with aligned loads, at most this wide."""
_PROBE = "7767517\n2 2\nInput in0 0 1 in0\nReLU out0 1 1 in0 out0\n"


class LoadedFrames:
    """The networks of a region's steps."""

    def __init__(self, workdir: Path, threads: int, winograd: bool) -> None:
        import ncnn

        self._ncnn = ncnn
        self._plan = plan = read_frames(workdir)
        self._option = ncnn.Option()
        self._option.num_threads = threads
        files = [network_files(number) for number in range(len(plan.steps))]
        self._networks = [Network(workdir / p, workdir / w, threads, winograd) for p, w in files]

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        plan = self._plan
        given = zip((*plan.inputs, *plan.outputs), (*inputs, *outputs), strict=True)
        arrays = {name: array[0] for name, array in given}
        for name, shape in plan.shapes.items():
            arrays.setdefault(name, np.zeros(shape, np.float32))
        turns = [
            turn
            for step, network in zip(plan.steps, self._networks, strict=True)
            for turn in self._turns(step, network, arrays[step.source], arrays.get(step.addend), arrays[step.result])
        ]
        return partial(_run, turns)

    def _turns(
        self, step: Step, network: Network, source: np.ndarray, addend: np.ndarray | None, result: np.ndarray
    ) -> Iterator[_Turn]:
        """One run of the network for each ``step.frames`` frames of the result."""
        count = result.shape[1]
        source_rows = step.pitch * step.frames
        stacks = [self._stacks(source, count, step, step.pitch, source_rows)]
        if addend is not None:
            plain = Step(step.addend, "", step.result, step.result_pitch, 0, 0, step.frames)
            stacks.append(self._stacks(addend, count, plain, step.result_pitch, step.result_rows))
        for first, parts in zip(range(0, count, step.frames), zip(*stacks, strict=True), strict=True):
            targets = tuple(
                (slice(j * step.result_pitch, j * step.result_pitch + result.shape[2]), result[:, first + j])
                for j in range(step.frames)
            )
            yield _Turn(network, parts, targets)

    def _stacks(self, array: np.ndarray, count: int, step: Step, pitch: int, rows: int) -> list[_Stack]:
        """What each turn reads of ``array``, which is [C, D, H, W]; ``count`` is the number of result frames."""
        channels, depth, height, width = array.shape
        pack = self._pack(channels)
        packed = channels // pack
        if step.frames == 1:
            # Neighbouring frames' stacks overlap: each frame is packed once, before its first use.
            memory = _zeros((count - 1) * step.stride + step.depth, packed, rows, width, pack)
            places = [memory[d * step.stride :][: step.depth] for d in range(count)]
        else:
            memory = _zeros(count // step.frames, step.depth, packed, rows, width, pack)
            places = list(memory)
        stacks, filled = [], set()
        for turn, place in enumerate(places):
            fills = []
            for below in range(step.frames):
                for k in range(step.depth):
                    frame = (turn * step.frames + below) * step.stride + k - step.front
                    spot = place[k, :, below * pitch : below * pitch + height]
                    if 0 <= frame < depth and spot.ctypes.data not in filled:
                        filled.add(spot.ctypes.data)
                        fills.append(self._fill(array[:, frame], spot))
            mat = self._mat(place.reshape(step.depth * packed, rows, width, pack))
            stacks.append(_Stack(tuple(fills), mat, place))
        return stacks

    def _fill(self, frame: np.ndarray, spot: np.ndarray) -> Callable[[], None]:
        """A call that packs ``frame`` [C, H, W] into ``spot`` [C / pack, H, W, pack]."""
        pack = spot.shape[-1]
        if pack == 1:
            return partial(np.copyto, spot[..., 0], frame)
        source = self._mat(frame[..., None])
        return partial(self._ncnn.convert_packing, source, self._mat(spot), pack, self._option)

    def _mat(self, view: np.ndarray) -> Any:
        """The view [C / pack, H, W, pack], whose planes are contiguous, as ncnn sees it. The view must live on."""
        channels, height, width, pack = view.shape
        mat = self._ncnn.Mat(view[:1].reshape(1, height, width * pack))
        mat.c, mat.w, mat.elempack, mat.elemsize = channels, width, pack, 4 * pack
        mat.cstep = view.strides[0] // mat.elemsize
        return mat

    def _pack(self, channels: int) -> int:
        """How many channels ncnn interleaves here if there are ``channels``."""
        net = self._ncnn.Net()
        net.load_param_mem(_PROBE)
        net.load_model_mem("")
        extractor = net.create_extractor()
        extractor.input("in0", self._ncnn.Mat(1, 1, channels))
        return int(extractor.extract("out0", 1)[1].elempack)


@dataclass(frozen=True)
class _Stack:
    """What a network reads, and the calls that put it there."""

    fills: tuple[Callable[[], None], ...]
    mat: Any
    memory: np.ndarray
    """Where the Mat lies, which does not keep it."""


@dataclass(frozen=True)
class _Turn:
    """One run of a network: rows of what it makes, and where they go."""

    network: Network
    stacks: tuple[_Stack, ...]
    targets: tuple[tuple[slice, np.ndarray], ...]


def _run(turns: Sequence[_Turn]) -> None:
    extractor = made = found = None
    try:
        for turn in turns:
            extractor = turn.network.net.create_extractor()
            for number, stack in enumerate(turn.stacks):
                for fill in stack.fills:
                    fill()
                extractor.input(f"in{number}", stack.mat)
            status, made = extractor.extract("out0")
            found = np.asarray(made)
            if status or found.ndim != 3:
                raise RuntimeError(f"ncnn gave a frame as {found.shape}, status {status}")
            for rows, target in turn.targets:
                np.copyto(target, found[:, rows])
    finally:
        # An error keeps this frame. What lies in a network's pools would be freed after them, in other memory.
        extractor = made = found = None


def _zeros(*shape: int) -> np.ndarray:
    """Aligned zeros that the caller keeps."""
    size = int(np.prod(shape)) * 4
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(np.float32).reshape(shape)
