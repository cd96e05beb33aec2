"""PyTorch's process-wide precision switches for GPUs.

By default PyTorch's convolutions compute in TF32, and sums of products that are split among blocks of a GPU are
rounded to half precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from collage_evo.backends.variants import Arithmetic


@contextmanager
def computing_in(arithmetic: Arithmetic, search: bool = False) -> Iterator[None]:
    """Multiply float32 in TF32 if that is the ``arithmetic``, else exactly, with sums in float32.

    The switches hold for computation and for Inductor's compilation within the context, which restores them.

    Args:
        arithmetic: of the computation within.
        search: whether cuDNN times its algorithms for convolutions that are new to this thread.
    """
    wanted = _switches(arithmetic, search)
    before = [(holder, name, _value(holder, name)) for holder, name, _ in wanted]
    try:
        _set(wanted)
        yield
    finally:
        _set(before)


def _switches(arithmetic: Arithmetic, search: bool) -> list[tuple[Any, str, Any]]:
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    tf32 = arithmetic is Arithmetic.TF32
    precision = "tf32" if tf32 else "ieee"
    return [
        # Both generations of switches: PyTorch stops at an operator where they disagree. The older ones come first,
        # since they set some of the newer ones.
        (matmul, "allow_tf32", tf32),
        (cudnn, "allow_tf32", tf32),
        (cudnn, "fp32_precision", precision),
        *((holder, "fp32_precision", precision) for holder in (matmul, cudnn.conv, cudnn.rnn)),
        (matmul, "allow_fp16_reduced_precision_reduction", False),
        (matmul, "allow_bf16_reduced_precision_reduction", False),
        (matmul, "allow_fp16_accumulation", False),
        (cudnn, "benchmark", search),
    ]


def _value(holder: Any, name: str) -> Any:
    """The present value of a switch, in the form for setting it."""
    try:
        value = getattr(holder, name)
    except RuntimeError:
        # The older switch disagrees with the newer one: it has the other of two values.
        return getattr(holder, "conv", holder).fp32_precision != "tf32"
    split = getattr(holder, f"{name}_split_k", None)
    return value if split is None else (value, split)


def _set(values: list[tuple[Any, str, Any]]) -> None:
    for holder, name, value in values:
        setattr(holder, name, value)
