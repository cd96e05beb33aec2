"""How long operators take on one core, without measuring: takes a graph, gives ms by node; and what lanes add.

Lanes are cut by these before anything of the region is compiled. They need to be right in proportion only: what a cut
is worth is measured as a whole.
"""

from __future__ import annotations

from collage_evo.graph.ir import Graph
from collage_evo.graph.operators import ELEMENTWISE, HEAVY
from collage_evo.graph.roofline import VIEWS, Roofline

CORE = Roofline(macs_per_ms=50e6, bytes_per_ms=15e6)
"""One core of a server of today (AVX-512, float32): what convolutions and products reach in the libraries, and what
operators without arithmetic read and write out of the caches."""

DEPTHWISE_SHARE = 0.1
"""Of the arithmetic that a convolution of each channel alone reaches: it uses what it has read a few times only."""

OPERATOR_MS = 0.001
"""To begin an operator."""

CALL_MS = 0.01
"""To begin a part: its library's call."""

HANDOFF_MS = 0.01
"""From the end of a part to the beginning of one in another lane that waits for it."""

BORDER_BYTES_PER_MS = 10e6
"""Libraries convert the layout of what enters and leaves a part."""


def node_ms(graph: Graph) -> tuple[float, ...]:
    """Estimated ms of each node of ``graph`` on one core, inside a larger piece."""
    return tuple(_ms(graph, index) for index in range(len(graph.nodes)))


def _ms(graph: Graph, index: int) -> float:
    node = graph.nodes[index]
    if node.op_type in VIEWS or _epilogue(graph, index):
        return OPERATOR_MS
    ms = CORE.bound_ms(graph, 1 << index)
    if node.op_type == "Conv" and node.attributes.get("group", 1) > 1 and graph.tensors[node.inputs[1]].shape[1] == 1:
        slow = Roofline(CORE.macs_per_ms * DEPTHWISE_SHARE, CORE.bytes_per_ms)
        ms = slow.bound_ms(graph, 1 << index)
    return OPERATOR_MS + ms


def _epilogue(graph: Graph, index: int) -> bool:
    """Whether the node is computed on what a heavy operator has just made, which nobody else reads."""
    if graph.nodes[index].op_type not in ELEMENTWISE:
        return False
    for name in graph.nodes[index].inputs:
        maker = graph.producer.get(name, -1)
        if maker >= 0 and graph.nodes[maker].op_type in HEAVY and len(graph.consumers[name]) == 1:
            return True
    return False
