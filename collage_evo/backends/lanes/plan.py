"""What runs in which lane: parts that an engine compiled for one thread, copies, and the tensors between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collage_evo.graph.ir import Tensor


@dataclass(frozen=True)
class View:
    """Where a tensor lies inside another: elements ``start`` to ``stop`` of ``axis``; all axes before have size 1.

    So it is one stretch of memory, and whoever makes it has made that part of ``parent``.
    """

    parent: str
    axis: int
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """One compiled piece, run by ``lane``; tensors in the order of the piece's own inputs and outputs."""

    lane: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Copy:
    """A copy that ``lane`` makes itself, of elements ``start`` to ``stop`` of ``axis`` of the larger of two tensors.

    With ``join`` all of ``source`` goes there in ``target``; without, ``target`` gets these of ``source``.
    """

    lane: int
    source: str
    target: str
    axis: int
    start: int
    stop: int
    join: bool


@dataclass(frozen=True)
class LanePlan:
    """A region's work on ``lanes`` lanes.

    ``steps`` are in an order in which they could run one after the other; each lane takes its own in this order.
    ``tensors`` are the inputs and outputs, by the names that they have in the region's model, and all between.
    """

    lanes: int
    steps: tuple[Part | Copy, ...]
    tensors: Mapping[str, Tensor]
    views: Mapping[str, View]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
