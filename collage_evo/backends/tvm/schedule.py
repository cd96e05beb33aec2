"""CPU schedules: tiling, vectorisation and parallel loops of a fused function, by a rule or a plan.

Every reduction (convolution, matrix product, pooling) gets the same schedule: the last axis of the result is
vectorised, a few elements of the axis before it stay in registers with it, and the epilogue is computed on that tile
while it is there. With images laid out NHWC this brings ResNet-50 on one AVX-512 core from 7,200 ms, TVM's default,
to 44 (ONNX Runtime: 37); scheduling takes a tenth of a second. A transposition goes tile by tile too, each row of a
tile gathered as one vector: a fifth of the time of its plain loops. The rule derives the tile from the processor's
registers; tuning (``tune.py``) tries the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

REVISION = 3
"""Increases when the rule or the choices change: part of the backend's version, so that older costs are not used."""
_VECTOR_BITS_WIDE = 512
_FLOAT_BITS = 32
_LINE = 16
"""Floats in a cache line: the side of a transposition's tile."""
_NARROW = 4
"""A transposition with fewer elements on either side is as quick by plain loops."""


@dataclass(frozen=True)
class Registers:
    """A processor's registers: floats in a vector, and rows of two vectors each that fit."""

    lanes: int
    rows: int

    @classmethod
    def of(cls, target: Any) -> Registers:
        """The registers of TVM's ``target``: 32 with vectors of 512 bits, else 16."""
        from tvm.target.codegen import llvm_get_vector_width

        bits = llvm_get_vector_width(target)
        return cls(max(1, bits // _FLOAT_BITS), 14 if bits >= _VECTOR_BITS_WIDE else 6)


@dataclass(frozen=True)
class Plan:
    """The choices of one schedule.

    Attributes:
        rows: elements of the tile's unrolled axis.
        width: elements of its vectorised axis.
        columns_first: whether all rows of one column of tiles come before the next column.
    """

    rows: int
    width: int
    columns_first: bool = True

    def distance(self, other: Plan) -> tuple[int, float]:
        """The number of choices that differ, and by how many powers of two."""
        powers = abs(math.log2(self.rows / other.rows)) + abs(math.log2(self.width / other.width))
        return sum(a != b for a, b in zip(astuple(self), astuple(other), strict=True)), powers


def schedule_module(module: Any, target: Any) -> Any:
    """Schedule every loop function of ``module`` by the rule, except those that a tuned record has scheduled.

    A function that the rule does not fit retains its plain loops. For one core no loop is parallel: such code needs
    no pool, of which each calling thread has its own, with one number of threads for all code that it calls.
    """
    from tvm import tirx
    from tvm.s_tir.schedule import ScheduleError

    registers, parallel = Registers.of(target), int(target.attrs["num-cores"]) > 1
    for variable, function in list(module.functions.items()):
        if isinstance(function, tirx.PrimFunc) and not function.attrs.get("tirx.is_scheduled", False):
            try:
                module[variable] = scheduled(function, registers, parallel=parallel).mod["main"]
            except (ScheduleError, UnfitError):
                continue
    return module


class UnfitError(Exception):
    """The rule, or the plan, does not fit this function."""


def scheduled(function: Any, registers: Registers, plan: Plan | None = None, parallel: bool = True) -> Any:
    """``function`` scheduled by ``plan``, or by the rule: a TVM ``Schedule`` with its trace.

    ``parallel``: whether the pool's threads share the outermost loop.

    Raises:
        UnfitError, ScheduleError: the plan or the rule does not fit.
    """
    from tvm import IRModule
    from tvm.s_tir import Schedule

    schedule = Schedule(IRModule({"main": function}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    reduction, separate, last = _inline(schedule, blocks)
    if reduction is not None:
        epilogue = None if last is reduction else last
        _tile(schedule, reduction, epilogue, plan or _rule(schedule, reduction, registers), parallel)
    elif (turned := _turned_axis(schedule, last)) is not None:
        _turn(schedule, last, turned, plan or _turn_rule(schedule, last, turned), parallel)
    else:
        separate.append(last)
    for block in separate:
        outer = schedule.get_loops(block)[:-1]
        if outer:
            _fuse(schedule, outer, parallel)
    return schedule


def _fuse(schedule: Any, outer: Sequence[Any], parallel: bool) -> None:
    """Fuse the outermost loops into one, and share it among threads if ``parallel``."""
    fused = schedule.fuse(*outer)
    if parallel:
        schedule.parallel(fused)


def plans(function: Any, registers: Registers) -> tuple[Plan, ...]:
    """The rule's plan for ``function`` first, then all others that its shape allows; none for plain loops.

    Raises:
        UnfitError: the rule does not fit.
    """
    from tvm import IRModule
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import ScheduleError

    schedule = Schedule(IRModule({"main": function}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    try:
        reduction, _, last = _inline(schedule, blocks)
    except ScheduleError as error:
        raise UnfitError from error
    if reduction is not None:
        rule, others = _rule(schedule, reduction, registers), _tiles(schedule, reduction, registers)
    elif (turned := _turned_axis(schedule, last)) is not None:
        rule, others = _turn_rule(schedule, last, turned), _turns(schedule, last, turned, registers)
    else:
        return ()
    return tuple(dict.fromkeys((rule, *others)))


def _inline(schedule: Any, blocks: Any) -> tuple[Any, list[Any], Any]:
    """The single reduction if any, blocks that must stay separate, and the last block; inlines all others."""
    reductions = [block for block in blocks if any(_axes(schedule, block)[1])]
    if len(reductions) > 1:
        raise UnfitError
    reduction = reductions[0] if reductions else None
    separate = []
    for block in blocks[:-1]:
        if block is reduction:
            continue
        if reduction is not None and _resizes(schedule, block):
            # Padding inside the reduction would cost a branch at every use.
            separate.append(block)
        else:
            schedule.compute_inline(block)
    return reduction, separate, blocks[-1]


def _axes(schedule: Any, block: Any) -> tuple[list[int], list[bool]]:
    """Extents of the block's data-parallel axes, and for every axis whether the block reduces it."""
    from tvm.tirx import IterVar

    axes = schedule.get(block).iter_vars
    reduced = [axis.iter_type == IterVar.CommReduce for axis in axes]
    return [int(axis.dom.extent) for axis, r in zip(axes, reduced, strict=True) if not r], reduced


def _resizes(schedule: Any, block: Any) -> bool:
    """Whether the block reads one buffer and writes one of another shape, as padding does."""
    body = schedule.get(block)
    if len(body.reads) != 1:
        return False
    before, after = body.reads[0].source.shape, body.writes[0].source.shape
    return [int(extent) for extent in before] != [int(extent) for extent in after]


def _rule(schedule: Any, reduction: Any, registers: Registers) -> Plan:
    extents = _tileable(schedule, reduction)
    width = _vector(_run_of_columns(schedule, reduction, extents[-1]), registers.lanes)
    return Plan(_divisor(extents[-2], registers.rows), width)


def _tiles(schedule: Any, reduction: Any, registers: Registers) -> Iterable[Plan]:
    """Tiles that fit the registers, or nearly fit."""
    extents = _tileable(schedule, reduction)
    run, vectors = _run_of_columns(schedule, reduction, extents[-1]), 2 * registers.rows + 2
    for rows in _divisors(extents[-2], vectors):
        for width in _divisors(run, 6 * registers.lanes):
            if width > 1 and rows * math.ceil(width / registers.lanes) <= vectors:
                yield Plan(rows, width)
                yield Plan(rows, width, columns_first=False)


def _tileable(schedule: Any, reduction: Any) -> list[int]:
    extents, reduced = _axes(schedule, reduction)
    if len(extents) < 2 or any(reduced[: reduced.index(True)]) or extents[-1] == 1:
        raise UnfitError
    return extents


def _tile(schedule: Any, reduction: Any, epilogue: Any, plan: Plan, parallel: bool) -> None:
    """Compute ``reduction`` one register tile at a time, inside the loops of ``epilogue``."""
    extents, _ = _axes(schedule, reduction)
    if epilogue is None:
        # A copy out of the tile replaces the epilogue.
        epilogue = schedule.cache_write(reduction, 0, "global")
    loops = schedule.get_loops(epilogue)
    if [int(schedule.get(loop).extent) for loop in loops] != extents:
        raise UnfitError
    row_outer, row = schedule.split(loops[-2], [None, plan.rows])
    column_outer, column = schedule.split(loops[-1], [None, plan.width])
    first, between = (loops[:1], loops[1:-2]) if len(loops) > 2 else ((), ())
    if plan.columns_first:
        # All rows reuse the tile's weights before the next columns begin.
        outer, inner_outer = [*first, column_outer, *between], row_outer
    else:
        outer, inner_outer = [*first, *between, row_outer], column_outer
    schedule.reorder(*outer, inner_outer, row, column)
    schedule.compute_at(reduction, inner_outer, preserve_unit_loops=True)
    inner = schedule.get_loops(reduction)[len(outer) + 1 :]
    spatial, sums = inner[: len(extents)], inner[len(extents) :]
    schedule.reorder(*sums, *spatial[-2:])
    for vector, unrolled in ((column, row), (spatial[-1], spatial[-2])):
        schedule.vectorize(vector)
        schedule.unroll(unrolled)
    _fuse(schedule, outer, parallel)
    # Last: loops around the two resulting halves can no longer be changed.
    schedule.decompose_reduction(reduction, sums[0])


def _turned_axis(schedule: Any, block: Any) -> int | None:
    """The axis of the result that is contiguous in the block's input, if it is not the last one."""
    body = schedule.get(block)
    axes = [axis.var for axis in body.iter_vars]
    extents, _ = _axes(schedule, block)
    for read in body.reads:
        along = [k for k, axis in enumerate(axes) if read.region and axis.same_as(read.region[-1].min)]
        if along and along[0] < len(axes) - 1 and min(extents[along[0]], extents[-1]) >= _NARROW:
            return along[0]
    return None


def _turn_rule(schedule: Any, block: Any, axis: int) -> Plan:
    extents, _ = _axes(schedule, block)
    return Plan(_divisor(extents[axis], _LINE), _divisor(extents[-1], _LINE))


def _turns(schedule: Any, block: Any, axis: int, registers: Registers) -> Iterable[Plan]:
    extents, _ = _axes(schedule, block)
    for rows in _divisors(extents[axis], 4 * registers.lanes):
        for width in _divisors(extents[-1], 4 * registers.lanes):
            if rows * width <= 2 * registers.lanes**2:
                yield Plan(rows, width)
                yield Plan(rows, width, columns_first=False)


def _turn(schedule: Any, block: Any, axis: int, plan: Plan, parallel: bool) -> None:
    """Transpose tile by tile: a tile's reads stay in the nearest cache until all of each line is used."""
    loops = list(schedule.get_loops(block))
    row_outer, row = schedule.split(loops[axis], [None, plan.rows])
    column_outer, column = schedule.split(loops[-1], [None, plan.width])
    others = [loop for k, loop in enumerate(loops[:-1]) if k != axis]
    outer = [column_outer, row_outer] if plan.columns_first else [row_outer, column_outer]
    schedule.reorder(*others, *outer, row, column)
    schedule.vectorize(column)
    _fuse(schedule, [*others, *outer], parallel)


def _run_of_columns(schedule: Any, reduction: Any, columns: int) -> int:
    """Number of neighbouring columns that read the same inputs: in a grouped convolution those of one group.

    In a depthwise one neighbouring columns read neighbouring inputs, which is as good.
    """
    shapes = [[int(extent) for extent in read.source.shape] for read in schedule.get(reduction).reads]
    if len(shapes) != 2 or any(len(shape) != 4 for shape in shapes):
        return columns
    inputs, weights = shapes
    return columns * weights[2] // inputs[3] if 1 < weights[2] < inputs[3] and weights[3] == columns else columns


def _vector(extent: int, lanes: int) -> int:
    """Two vectors of the axis if they divide it, else one, else a part of one."""
    return next((width for width in (2 * lanes, lanes) if extent % width == 0), _divisor(extent, lanes))


def _divisors(extent: int, most: int) -> list[int]:
    return [d for d in range(1, min(extent, most) + 1) if extent % d == 0]


def _divisor(extent: int, most: int) -> int:
    return _divisors(extent, most)[-1]
