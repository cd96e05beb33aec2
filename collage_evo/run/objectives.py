"""Objectives of a run besides latency: the bound of each, and what a match adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collage_evo.backends.select import arithmetics_of
from collage_evo.backends.variants import Arithmetic
from collage_evo.files import Stored
from collage_evo.genome.outcome import Bounds, Objective, Terms
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.patterns.match import Match
from collage_evo.run.context import RunContext

Sensitivities = dict[Arithmetic, tuple[float, ...]]
SHARES = Stored("work/shares.json", Sensitivities)


@dataclass(frozen=True)
class Precision:
    """Predicted losses of matches in lower precisions.

    ``sensitivities``: by arithmetic, the part of each node in the squared relative error of the outputs.
    """

    sensitivities: Mapping[Arithmetic, Sequence[float]] = field(default_factory=dict)

    def error2(self, match: Match) -> float:
        """The predicted contribution of ``match`` to the squared error of the outputs."""
        sensitivities = ((self.sensitivities.get(kind, ()), nodes) for kind, nodes in arithmetics_of(match))
        return sum(share[node] for share, nodes in sensitivities if share for node in members(nodes))


def answer_bounds(run: RunContext) -> Bounds:
    """The largest value of each objective that the answer may have."""
    return {Objective.ERROR: run.limits.budget}


def search_bounds(run: RunContext) -> Bounds:
    """The largest values on samples of the search, whatever the arithmetic."""
    return {**answer_bounds(run), Objective.ERROR: run.limits.accepted}


def front_bounds(run: RunContext) -> Bounds:
    """The largest values that the front has."""
    return {**answer_bounds(run), Objective.ERROR: run.limits.measured}


def further_bounds(run: RunContext) -> Bounds:
    """Those of the answer without the error's, which depends on the arithmetic: :meth:`Limits.allows`."""
    return {objective: bound for objective, bound in answer_bounds(run).items() if objective is not Objective.ERROR}


def terms(run: RunContext, graph: Graph, precision: Precision, matches: Sequence[Match]) -> Terms:
    """The predicted contribution of each of ``matches`` to each objective; empty if none contributes to any."""
    added = {
        objective: tuple(_ADDED[objective](graph, precision, match) for match in matches)
        for objective in answer_bounds(run)
    }
    return added if any(map(any, added.values())) else {}


_ADDED: Mapping[Objective, Callable[[Graph, Precision, Match], float]] = {
    Objective.ERROR: lambda graph, precision, match: precision.error2(match)
}
"""What a match adds to each objective, in units of :meth:`Objective.amount`."""
