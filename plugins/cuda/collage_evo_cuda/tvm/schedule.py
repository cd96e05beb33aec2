"""GPU schedules: every loop nest of a lowered module on blocks and threads.

Most rules are TVM's own. Convolutions, laid out NHWC with weights OHWI, become matrix products whose operands are
gathered into shared memory (implicit GEMM); in float16 with both sides over 64, products run on tensor cores. TVM's
rules for other reductions put a block of threads on each sum. Where sums are short and many (depthwise and grouped
convolutions, pooling), a thread for each is tried first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_THREADS = 128
_SUMS = 8192
"""So many sums keep a GPU busy with one thread each ..."""
_RATIO = 16
"""... where there are this many times as many sums as terms in each."""
_SHORT = 64
"""Terms of a sum that is not worth dividing in any case."""


def schedule_kernels(module: Any, target: Any) -> Any:
    """``module`` with every unscheduled loop function scheduled by the first rule that fits.

    Raises:
        ValueError: no rule fits one.
    """
    from tvm import tirx

    for variable, function in list(module.functions.items()):
        if isinstance(function, tirx.PrimFunc) and not function.attrs.get("tirx.is_scheduled", False):
            scheduled = default_schedule(function, target).mod["main"]
            module[variable] = scheduled.with_attr("tirx.is_scheduled", True)
    return module


def default_schedule(function: Any, target: Any) -> Any:
    """``function`` as a TVM ``Schedule`` by the first rule that fits.

    Raises:
        ValueError: none does.
    """
    for rule in _rules():
        schedule = rule(function, target)
        if schedule is not None and not _keeps_global(schedule.mod["main"]):
            return schedule
    raise ValueError(f"no GPU schedule fits {function.attrs.get('global_symbol', 'a function')}")


def _rules() -> Iterator[Callable[[Any, Any], Any]]:
    """Rules, from the most specific to the one that fits everything."""
    from tvm.s_tir.dlight import gpu

    yield partial(_of_tvm, gpu.Matmul())
    yield thread_for_each_sum
    for rule in (gpu.GEMV, gpu.Reduction, gpu.GeneralReduction, gpu.Transpose, gpu.Fallback):
        yield partial(_of_tvm, rule())


def _of_tvm(rule: Any, function: Any, target: Any) -> Any:
    """The schedule of a TVM rule; None where it does not fit, which some rules report only by an exception."""
    try:
        return rule.apply(function, target, False)
    except (RuntimeError, ValueError, AssertionError, IndexError):
        # RuntimeError is also ScheduleError, and what TVM's C++ checks raise. The others are from the rules' Python:
        # truth of a symbolic comparison, failed assertions, fewer loops or blocks than expected.
        return None


def thread_for_each_sum(function: Any, target: Any) -> Any:
    """A schedule in which one thread computes one sum in a register and its epilogue; None if not applicable."""
    from tvm.s_tir import Schedule
    from tvm.s_tir.dlight.analysis import normalize_prim_func
    from tvm.s_tir.dlight.base import try_inline

    schedule = Schedule(function)
    blocks = normalize_prim_func(schedule)
    if blocks is None:
        return None
    blocks = try_inline(schedule, blocks)
    sums = [block for block in blocks if block.is_reduction()]
    if len(sums) != 1 or len(blocks) > 2 or sums[0] is not blocks[0] or not _worth_it(sums[0]):
        return None
    reduction = sums[0].block_rv
    if len(blocks) == 1:
        last = schedule.cache_write(reduction, 0, "local")
    else:
        last = blocks[1].block_rv
        schedule.set_scope(reduction, 0, "local")
    each = [loop for loop, axis in zip(schedule.get_loops(reduction), sums[0].iters, strict=True) if axis.kind == "S"]
    # The sum's own loops are bound, and the epilogue moves in. The other way round TVM cannot decompose the sum's
    # indices where 128 sums are no whole rows.
    outer, thread = schedule.split(schedule.fuse(*each), [None, _THREADS])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.reverse_compute_at(last, thread, preserve_unit_loops=True)
    schedule.decompose_reduction(reduction, schedule.get_loops(reduction)[2])
    return schedule


def _worth_it(block: Any) -> bool:
    sizes = {kind: math.prod(int(axis.dom) for axis in block.iters if axis.kind == kind) for kind in "SR"}
    return sizes["R"] <= _SHORT or (sizes["S"] >= _SUMS and sizes["S"] >= _RATIO * sizes["R"])


def _keeps_global(function: Any) -> bool:
    """Whether it would allocate device memory at each call, which a captured call must not."""
    return any(buffer.scope() == "global" for buffer in function.body.block.alloc_buffers)
