"""Where a plan's buffers lie: takes when each is used, gives offsets in one piece of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collage_evo.backends.cudnn.plan import Buffer, Plan

_ALIGNMENT = 256


@dataclass(frozen=True)
class Room:
    """Offsets of buffers by name, and the bytes that they take together."""

    offsets: Mapping[str, int]
    nbytes: int


def one_behind_the_other(buffers: tuple[Buffer, ...]) -> Room:
    """Each in a place of its own."""
    offsets, end = {}, 0
    for buffer in buffers:
        offsets[buffer.name] = end
        end += _rounded(buffer.nbytes)
    return Room(offsets, end)


def inner_room(plan: Plan) -> Room:
    """The buffers between steps: two that no step needs at one time may share a place. Large ones choose first."""
    used: dict[str, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for view in step.tensors:
            used.setdefault(view.buffer, []).append(number)
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[str, int] = {}
    for buffer in sorted(plan.of("inner"), key=lambda buffer: -buffer.nbytes):
        first, last, size = min(used[buffer.name]), max(used[buffer.name]), _rounded(buffer.nbytes)
        offset = 0
        for start, end, begins, ends in sorted(placed):
            if begins <= last and first <= ends and offset < end and start < offset + size:
                offset = end
        offsets[buffer.name] = offset
        placed.append((offset, offset + size, first, last))
    return Room(offsets, max((end for _, end, _, _ in placed), default=0))


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
