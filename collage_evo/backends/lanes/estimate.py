"""How long operators take on one core, without measuring: takes a graph, gives ms by node; and what lanes add.

Lanes are cut by these before anything of the region is compiled. They need to be right in proportion only: what a cut
is worth is measured as a whole. So the rates here are round numbers for a server core with AVX-512 in float32, chosen
and not measured; what is worth trying goes by them too.
"""

from __future__ import annotations

from dataclasses import dataclass

from collage_evo.graph.ir import Graph
from collage_evo.graph.operators import ELEMENTWISE, HEAVY
from collage_evo.graph.roofline import VIEWS, multiply_adds, touched_bytes

MACS_PER_MS = 50e6
"""Multiply-adds of convolutions and products."""

DEPTHWISE_MACS_PER_MS = 5e6
"""The same where each channel is alone: what is read is used a few times only."""

BYTES_PER_MS = 15e6
"""What operators read and write, out of the caches too."""

OPERATOR_MS = 0.001
"""To begin an operator."""


@dataclass(frozen=True)
class Charges:
    """What lanes pay beside the operators themselves.

    Attributes:
        call_ms: to begin a part: its library's call.
        handoff_ms: from the end of a part to the beginning of one in another lane that waits for it; between what
            ``crew.py`` tells of a lane that is awake and of one that sleeps.
        border_bytes_per_ms: libraries convert the layout of what enters and leaves a part.
    """

    call_ms: float = 0.01
    handoff_ms: float = 0.01
    border_bytes_per_ms: float = 10e6


USUAL = Charges()


def node_ms(graph: Graph) -> tuple[float, ...]:
    """Estimated ms of each node of ``graph`` on one core, inside a larger piece."""
    return tuple(operator_ms(graph, index) for index in range(len(graph.nodes)))


def operator_ms(graph: Graph, index: int) -> float:
    """The same of one node."""
    node = graph.nodes[index]
    if node.op_type in VIEWS or _epilogue(graph, index):
        return OPERATOR_MS
    rate = DEPTHWISE_MACS_PER_MS if _depthwise(graph, index) else MACS_PER_MS
    # A core that waits for memory computes little meanwhile, so that the sum is nearer than the larger one.
    return OPERATOR_MS + multiply_adds(graph, 1 << index) / rate + touched_bytes(graph, 1 << index) / BYTES_PER_MS


def _depthwise(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    return node.op_type == "Conv" and node.attributes.get("group", 1) > 1 == graph.tensors[node.inputs[1]].shape[1]


def _epilogue(graph: Graph, index: int) -> bool:
    """Whether the node is computed on what a heavy operator has just made, which nobody else reads."""
    if graph.nodes[index].op_type not in ELEMENTWISE:
        return False
    for name in graph.nodes[index].inputs:
        maker = graph.producer.get(name, -1)
        if maker >= 0 and graph.nodes[maker].op_type in HEAVY and len(graph.consumers[name]) == 1:
            return True
    return False
