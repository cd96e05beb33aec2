"""Estimated time of operators on a lane's cores, without measuring, and the overhead of lanes.

Lanes are cut by these before anything of the region is compiled. Only their proportions need to be right: the region
is measured as a whole. So the rates here are round numbers for a server core with AVX-512 in float32, chosen and not
measured; they also decide which regions are worth trying.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.operators import ELEMENTWISE, HEAVY
from collage_evo.graph.ir.roofline import BYTES_PER_MS, MACS_PER_MS, VIEWS, multiply_adds, touched_bytes

DEPTHWISE_MACS_PER_MS = 5e6
"""Multiply-adds of depthwise convolutions, which use each input only a few times."""

OPERATOR_MS = 0.001
"""To begin an operator."""

SERIAL_SHARE = 0.16
"""Share of an operator's time on one core that more cores do not reduce."""

SYNC_MS = 0.016
"""Cost of doubling an operator's cores. Both are fitted to six networks on one thread and on two (Xeon)."""


@dataclass(frozen=True)
class Charges:
    """The overhead of lanes, in addition to the operators themselves.

    Attributes:
        call_ms: the library's call that begins a part.
        handoff_ms: from the end of a part to the beginning of one in another lane that waits for it; between the
            times in ``lane_threads.py`` for a lane that is awake and one that sleeps.
        border_bytes_per_ms: libraries convert the layout of tensors that enter and leave a part.
    """

    call_ms: float = 0.01
    handoff_ms: float = 0.01
    border_bytes_per_ms: float = 10e6


USUAL = Charges()


def node_ms(graph: Graph, cores: int = 1) -> tuple[float, ...]:
    """Estimated ms of each node of ``graph`` on ``cores`` cores, inside a larger piece."""
    return tuple(on_cores(operator_ms(graph, index), cores) for index in range(len(graph.nodes)))


def on_cores(ms: float, cores: int) -> float:
    """Scale ``ms`` on one core to ``cores``, or to a half, a quarter ... of them where that is less."""
    widths = (1 << power for power in range(1, cores.bit_length()))
    several = (ms * (SERIAL_SHARE + (1 - SERIAL_SHARE) / width) + SYNC_MS * math.log2(width) for width in widths)
    return min([ms, *several])


def operator_ms(graph: Graph, index: int) -> float:
    """Estimated ms of one node on one core."""
    node = graph.nodes[index]
    if node.op_type in VIEWS or _epilogue(graph, index):
        return OPERATOR_MS
    rate = DEPTHWISE_MACS_PER_MS if _depthwise(graph, index) else MACS_PER_MS
    # A core that waits for memory computes little meanwhile: the sum is a better estimate than the maximum.
    return OPERATOR_MS + multiply_adds(graph, 1 << index) / rate + touched_bytes(graph, 1 << index) / BYTES_PER_MS


def _depthwise(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    return node.op_type == "Conv" and node.attributes.get("group", 1) > 1 == graph.tensors[node.inputs[1]].shape[1]


def _epilogue(graph: Graph, index: int) -> bool:
    """Whether the node is the only reader of a heavy operator's result, computed while that is in cache."""
    if graph.nodes[index].op_type not in ELEMENTWISE:
        return False
    for name in graph.nodes[index].inputs:
        maker = graph.producer.get(name, -1)
        if maker >= 0 and graph.nodes[maker].op_type in HEAVY and len(graph.consumers[name]) == 1:
            return True
    return False
