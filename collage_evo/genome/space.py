"""Search space: the usable matches of a graph with their costs, and the choices of each node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from collage_evo.errors import InputError, NotSearchable
from collage_evo.genome.cost_model import CostModel, Engine, Flow, bordering, flows, predict
from collage_evo.genome.layout import Layout
from collage_evo.genome.outcome import Objective, Terms
from collage_evo.graph.ir.graph import Graph, NodeSet, members, unions
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Match, Placement
from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import edits_text

if TYPE_CHECKING:
    from collage_evo.genome.genome import Genome

Edge = tuple[int, int]
"""A data edge: producing node, consuming node."""


@dataclass(frozen=True)
class SearchSpace:
    """All placements of ``graph`` that ``matches`` can make up.

    ``reasons[node][backend]`` is why a backend refused a node; it is used in error messages only. ``terms``:
    objectives in addition to latency; without any, placements differ in latency only. ``policy``: how much is
    examined, and the prior before anything is measured.

    Raises:
        InputError: some node is in no usable match, so that no placement exists.
    """

    graph: Graph
    matches: tuple[Match, ...]
    cost: CostModel
    reasons: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    terms: Terms = field(default_factory=dict)
    policy: Policy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        if len(self.cost.match_ms) != len(self.matches):
            raise InputError(
                f"the cost model holds {len(self.cost.match_ms)} costs for {len(self.matches)} matches; "
                "measure the costs of this graph again"
            )
        for objective, added in self.terms.items():
            if len(added) != len(self.matches):
                raise InputError(f"there are {objective}s of {len(added)} matches for {len(self.matches)} matches")
        for node, options in zip(self.graph.nodes, self.candidates, strict=True):
            if not options:
                raise NotSearchable(self._uncovered(node.index))

    def _uncovered(self, index: int) -> str:
        node = self.graph.nodes[index]
        reasons = dict(self.reasons.get(index, {}))
        untimed = {match.backend for match in self.matches if match.nodes >> index & 1} - reasons.keys()
        reasons |= dict.fromkeys(untimed, "accepted, but not timed")
        why = "; ".join(f"{backend}: {reason}" for backend, reason in sorted(reasons.items()))
        what, mend = (
            ("there was no time to measure a backend on", "enlarge costs.seconds (with --time, that)")
            if untimed
            else ("no backend takes", "enable a backend that supports it, or change the model")
        )
        return f'{what} node "{node.name}" ({node.op_type}){": " + why if why else ""}; {mend}'

    @cached_property
    def usable(self) -> tuple[int, ...]:
        """Indices of finite-cost matches; of several that run the same nodes alike only the cheapest."""
        able = ((i, match) for i, match in enumerate(self.matches) if match.nodes and self.cost.usable(i))
        alike = multimap(((match.nodes, match.engine, match.edits), index) for index, match in able)
        return tuple(sorted(min(indices, key=self.cost.match_ms.__getitem__) for indices in alike.values()))

    @cached_property
    def candidates(self) -> tuple[tuple[int, ...], ...]:
        """For each node the usable matches that cover it, in an order that no cost changes."""
        order = sorted(self.usable, key=lambda m: (self.matches[m].engine, self.matches[m].nodes))
        of_node = multimap((node, match) for match in order for node in members(self.matches[match].nodes))
        return tuple(tuple(of_node.get(node.index, ())) for node in self.graph.nodes)

    @cached_property
    def by_cost(self) -> tuple[tuple[int, ...], ...]:
        """The same lists, cheapest per covered node first: the order in which conflicts are repaired."""
        return tuple(tuple(sorted(options, key=self.ms_per_node)) for options in self.candidates)

    def ms_per_node(self, match: int) -> float:
        """Cost of a match divided by the number of nodes that it covers, in ms."""
        return self.cost.match_ms[match] / self.matches[match].nodes.bit_count()

    @cached_property
    def engines(self) -> tuple[Engine, ...]:
        """Engines with a usable match, sorted; those whose pieces are rewritten count as the plain ones."""
        return tuple(sorted({bordering(self.matches[match].engine) for match in self.usable}))

    @cached_property
    def engine_of(self) -> tuple[int, ...]:
        """For each match the index of its engine in :attr:`engines`; -1 where that has no usable match."""
        index = {engine: position for position, engine in enumerate(self.engines)}
        return tuple(index.get(bordering(match.engine), -1) for match in self.matches)

    @cached_property
    def written(self) -> Mapping[Engine, Mapping[Arithmetic, NodeSet]]:
        """The nodes into which each of :attr:`engines` writes each precision, where nothing is rewritten: all nodes
        of a rewritten site have the precision of its heavy operators."""
        plain = (self.matches[index] for index in self.usable if not self.matches[index].rewrites)
        numerics = multimap((bordering(match.engine), part) for match in plain for part in match.numerics)
        return {engine: unions(numerics.get(engine, ())) for engine in self.engines}

    def writes_more(self, engine: Engine, other: Engine) -> bool:
        """Whether ``engine`` writes the precisions of ``other``, and into more nodes."""
        nodes_written, others = self.written.get(engine, {}), self.written.get(other, {})
        nodes, fewer = (sum(map(int.bit_count, one.values())) for one in (nodes_written, others))
        return nodes_written.keys() == others.keys() and nodes > fewer

    @cached_property
    def node_engines(self) -> tuple[tuple[Engine, ...], ...]:
        """For each node the engines that can run it, sorted; as in :attr:`engines`."""
        indices = (sorted({self.engine_of[match] for match in options}) for options in self.candidates)
        return tuple(tuple(self.engines[index] for index in each) for each in indices)

    @cached_property
    def before(self) -> tuple[NodeSet, ...]:
        """For each match all nodes that must have run before it can."""
        return tuple(self.graph.ancestors(match.nodes) for match in self.matches)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Data edges, by producer, then consumer."""
        return tuple((i, j) for i, after in enumerate(self.graph.succ) for j in members(after))

    @cached_property
    def entering(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each match the edges that enter it, as (producing node, edge index)."""
        into = multimap((target, (source, index)) for index, (source, target) in enumerate(self.edges))
        return tuple(
            tuple(e for node in members(m.nodes) for e in into.get(node, ()) if not m.nodes >> e[0] & 1)
            for m in self.matches
        )

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """Tensors that move at run time."""
        return flows(self.graph)

    @cached_property
    def decoded(self) -> dict[Genome, Placement]:
        """Cache of recently decoded placements by genome."""
        return {}

    @cached_property
    def known_cover(self) -> list[int]:
        """An acyclic exact cover, once the function of this name searched for it (``cover/dynamic_program.py``)."""
        return []

    @cached_property
    def layout(self) -> Layout:
        """The part of the dynamic program's view that costs do not change."""
        return Layout(self.graph, self.flows, self.matches, self.before)

    @cached_property
    def digest(self) -> str:
        """Changes when genomes of another space would mean something else here."""
        parts = [f"{len(self.graph.nodes)}", *(f"{i}>{j}" for i, j in self.edges)]
        for match in sorted({m for options in self.candidates for m in options}):
            chosen = self.matches[match]
            rewritten = f":{edits_text(chosen.rewrites)}" if chosen.rewrites else ""
            parts.append(f"{chosen.nodes:x}:{chosen.backend}:{chosen.variant}{rewritten}")
        return hashlib.sha256("|".join(sorted(parts)).encode()).hexdigest()[:16]

    def priced(self, prices: Mapping[Objective, float]) -> SearchSpace:
        """The space where a match also costs what it adds to objectives, at ``prices`` in ms for each unit."""
        costs = self.cost.match_ms
        for objective, price in prices.items():
            if price:
                costs = tuple(ms + price * added for ms, added in zip(costs, self.terms[objective], strict=True))
        return self if costs is self.cost.match_ms else self.costing(replace(self.cost, match_ms=costs))

    def costing(self, cost: CostModel) -> SearchSpace:
        """The space at other costs, sharing what costs do not change."""
        other = replace(self, cost=cost)
        vars(other).update((name, getattr(self, name)) for name in _WHATEVER_IT_COSTS)
        return other

    def predict(self, placement: Placement) -> float:
        """Predicted latency of ``placement`` in ms, by the additive model."""
        return predict(self.flows, placement, self.cost)

    def added(self, objective: Objective, matches: Iterable[int]) -> float:
        """Predicted sum of what ``matches`` add to ``objective``."""
        each = self.terms.get(objective)
        return sum(each[match] for match in matches) if each else 0.0


_WHATEVER_IT_COSTS = ("before", "edges", "entering", "flows", "layout")
"""Cached properties of a space that no cost changes."""
