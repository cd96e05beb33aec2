"""Layout of a region's tensors: which of them have their channels innermost.

cuDNN's convolutions can read one layout and write another; all other operations take their tensors in one order.
Tensors that cross a region's border have ONNX's order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from collage_evo.graph.ir.graph import Graph
from collage_evo_cuda.cudnn.drafts import Draft, operands
from collage_evo_cuda.cudnn.rules import collapse

_RANKS = (4, 5)


def matters(shape: Sequence[int]) -> bool:
    """Whether moving the channels innermost changes the order of a tensor's elements in memory."""
    return len(shape) in _RANKS and shape[1] > 1 and prod(shape[2:]) > 1


def moved(shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes in memory order with channels innermost."""
    batch, channels, *spatial = shape
    return (batch, *spatial, channels)


def channels_inside(graph: Graph, drafts: Sequence[Draft], border: Collection[str]) -> frozenset[str]:
    """The tensors that may have channels innermost; none of ``border`` may."""
    groups: dict[str, set[str]] = {}
    plain = set(border)
    for draft in drafts:
        plain.update(_in_order(graph, draft))
        tied = [name for name in _tied(graph, draft) if matters(graph.tensors[name].shape)]
        union = set(tied).union(*(groups.get(name, set()) for name in tied))
        groups.update(dict.fromkeys(union, union))
    return frozenset(name for name, group in groups.items() if not group & plain)


def _tied(graph: Graph, draft: Draft) -> Iterator[str]:
    """Tensors that must share one order."""
    yield draft.result
    if draft.heavy:
        yield from filter(None, (draft.addend,))
    else:
        yield from (name for name in operands(draft) if name not in graph.constants)


def _in_order(graph: Graph, draft: Draft) -> tuple[str, ...]:
    """Tensors that the step takes only in ONNX's order."""
    if draft.convolution:
        return ()
    shape = graph.tensors[draft.result].shape
    if draft.heavy:
        return (draft.result, *draft.first.inputs[:2])
    if not matters(shape):
        return ()
    padded = [
        (1,) * (len(shape) - len(graph.tensors[name].shape)) + graph.tensors[name].shape for name in operands(draft)
    ]
    odd = any(
        matters(full) and len(graph.tensors[name].shape) != len(shape) and name not in graph.constants
        for name, full in zip(operands(draft), padded, strict=True)
    )
    return (draft.result,) if odd or collapse(moved(shape), [moved(full) for full in padded]) is None else ()
