"""What a backend takes it computes right, whatever the operator; what it cannot do it refuses beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from multiprocessing import get_context

import pytest

from collage_evo.backends.registry import get_backend

from .cases_frames import CASES
from .worker import REFUSED, RIGHT, WRONG, work

BACKENDS = ("onnxruntime", "openvino", "ncnn", "tvm")

EXPECTED_REFUSALS = {
    "onnxruntime": set(),
    # Its LRN cuts a fractional bias down to an integer.
    "openvino": {"lrn", "lrn_behind_conv"},
    "ncnn": {
        *("conv_same_lower", "average_pool_same_upper", "conv_batch_two", "conv_computed_weight"),
        *("conv_3d_dilated_depth", "conv_3d_groups", "conv_3d_batch_two", "conv_3d_plus_constant", "relu_3d"),
        *("gemm_rows", "pad_constant", "reduce_all", "reduce_all_behind_conv", "gather_embedding", "arg_max"),
        *("cast_compare_where", "greater", "unsqueeze_squeeze"),
    },
    "tvm": {"residual_block_sum"},
}
"""What each backend declines. Anything else must be taken: a refusal too many is a speed-up lost unseen."""


@cache
def verdicts(backend: str) -> dict[str, str]:
    """Each case's verdict, from processes that a native library's crash may end."""
    probe = get_backend(backend).probe()
    if not probe.available:
        pytest.skip(f"{backend}: {probe.reason}")
    found: dict[str, str] = {}
    while len(found) < len(CASES):
        names = [name for name in CASES if name not in found]
        for name, verdict in zip(names, _until_crash(backend, names), strict=False):
            found[name] = verdict
    return found


def _until_crash(backend: str, names: list[str]) -> Iterator[str]:
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(backend, names, sender))
    process.start()
    sender.close()
    try:
        for _ in names:
            yield receiver.recv()
    except EOFError:
        process.join()
        yield f"{WRONG}the process ended with {process.exitcode}"
    finally:
        process.join()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_case_is_right_or_refused(backend: str, name: str) -> None:
    verdict = verdicts(backend)[name]
    if name in EXPECTED_REFUSALS[backend]:
        assert verdict.startswith(REFUSED)
    else:
        assert verdict == RIGHT
