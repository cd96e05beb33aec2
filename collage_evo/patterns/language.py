"""Pattern language: shapes of subgraph that a backend can take as one piece, each finding node sets in a graph.

A :class:`GraphPattern` is drawn as a function over operators, which reads like the graph that it finds:

    def swish(op, x):
        return op.Mul(x, op.Sigmoid(x))

    GraphPattern("swish", swish)
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from collage_evo.errors import ConfigError
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.patterns.expression import (
    Anything,
    Either,
    Ops,
    Result,
    Value,
    chain,
    constant,
    either,
    optional,
    value,
)
from collage_evo.patterns.matcher import Matcher

__all__ = ["GraphPattern", "Ops", "Pattern", "Value", "chain", "constant", "either", "optional", "value"]

Drawing = Callable[..., Value | tuple[Value, ...]]


def __dir__() -> list[str]:
    return __all__


class Pattern(ABC):
    """A rule that proposes node sets. The caller checks that they are connected, convex and supported."""

    name: str

    @abstractmethod
    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        """Every place in ``graph`` where the pattern fits, using only nodes in ``supported``."""


@dataclass(frozen=True)
class GraphPattern(Pattern):
    """Every place where the drawn graph is found, and where no other node reads the values inside.

    Attributes:
        draw: takes :class:`Ops`, and a tensor for each further argument; returns the value in which the pattern
            ends, or several. Other nodes may read these.
    """

    name: str
    draw: Drawing = field(repr=False)

    @cached_property
    def ends(self) -> tuple[Value, ...]:
        """The values in which the pattern ends.

        Raises:
            ConfigError: the function returned anything else.
        """
        free = [Anything() for _ in list(inspect.signature(self.draw).parameters)[1:]]
        outputs = self.draw(Ops(), *free)
        ends = outputs if isinstance(outputs, tuple) else (outputs,)
        if not ends or not all(isinstance(end, Result | Either) for end in ends):
            raise ConfigError(f"the function of pattern {self.name!r} must return outputs of operators")
        return ends

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        yield from Matcher(graph, supported).find(self.ends)
