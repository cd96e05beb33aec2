"""Who could run a node, and why others not: takes a configuration and the name of a node, gives an explanation."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from pathlib import Path

from collage_evo.backends.base import Backend
from collage_evo.backends.select import select_backends
from collage_evo.config import Config, cache_directory
from collage_evo.data import matching, read_samples
from collage_evo.errors import InputError
from collage_evo.fitness.costs import CostSettings, cost_key
from collage_evo.fitness.database import CostDatabase
from collage_evo.fitness.jobs import Answer
from collage_evo.fitness.slots import usable_cores
from collage_evo.graph.ir import Graph, Node, NodeSet, members
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.patterns.enumerate import Matches, enumerate_matches, supported_nodes
from collage_evo.patterns.match import Match
from collage_evo.patterns.matcher import TooManyWays
from collage_evo.report.explain import BackendAnswer, Explanation, Offer, Refusal
from collage_evo.runtime.timing import Timing


def explain_node(config: Config, name: str, run: Path | None = None) -> Explanation:
    """Ask every backend about node ``name``. Nothing is measured.

    Args:
        config: the model, the target and the backends.
        name: of a node in the normalised model, as placements and reports name it.
        run: the directory of a run whose own costs come before those that all runs share.

    Raises:
        InputError: the model cannot be used, or has no such node.
        UnavailableError: a backend that is asked for cannot be used.
    """
    backends = select_backends(config.backends.use)
    model = config.model
    any_shapes, threads = model.sizes == "smallest", len(usable_cores())
    shapes = model.one_profile()
    feeds = matching(read_samples(config), shapes)
    prepared = prepare_model(model.source, shapes, model.seed, 1, threads, feeds, any_shapes)
    graph = searchable(prepared, threads).graph
    node = _find(graph, name)
    found = enumerate_matches(graph, backends, config.verify.tolerance)
    costs = _Costs(graph, config, run)
    answers = tuple(_answer(graph, node, backend, found, costs) for backend in backends)
    return Explanation(node.name, node.op_type, _tensors(graph, node), answers)


class _Costs:
    """What was measured so far."""

    def __init__(self, graph: Graph, config: Config, run: Path | None) -> None:
        self._graph, self._target = graph, config.target
        self._settings = CostSettings(config.costs.timing.settings(), config.costs.flush)
        paths = [cache_directory(config) / "costs.sqlite"]
        if run is not None:
            paths.insert(0, run / "work" / "costs.sqlite")
        self._databases = [CostDatabase(path) for path in paths if path.exists()]

    def get(self, match: Match) -> Answer | None:
        key = cost_key(self._graph, match, self._target.device, self._target.threads, self._settings)
        return next((answer for database in self._databases if (answer := database.get(key))), None)


def _find(graph: Graph, name: str) -> Node:
    for node in graph.nodes:
        if node.name == name:
            return node
    names = [node.name for node in graph.nodes]
    near = difflib.get_close_matches(name, names, n=3) or names[:3]
    raise InputError(
        f"the normalised model has no node {name!r} (it may have been folded away); there are {len(names)}, "
        f"such as {', '.join(near)}"
    )


def _answer(graph: Graph, node: Node, backend: Backend, found: Matches, costs: _Costs) -> BackendAnswer:
    def holds(nodes: NodeSet, owner: str) -> bool:
        return owner == backend.name and bool(nodes >> node.index & 1)

    matches = [match for match in found.matches if holds(match.nodes, match.backend)]
    matches.sort(key=lambda match: (match.nodes.bit_count(), match.nodes, match.variant))
    refusals = [
        Refusal(rejected.pattern, _operators(graph, rejected.nodes), rejected.reason)
        for rejected in found.rejected
        if holds(rejected.nodes, rejected.backend)
    ]
    if reason := found.refusals.get(node.index, {}).get(backend.name):
        refusals.insert(0, Refusal("", (node.op_type,), reason))
    else:
        proposed = {*(match.pattern for match in matches), *(refusal.pattern for refusal in refusals)}
        refusals += _misfits(graph, backend, node, proposed)
    offers = tuple(_offer(graph, match, costs.get(match)) for match in matches)
    return BackendAnswer(backend.name, offers, tuple(refusals), backend.name in found.cut)


def _misfits(graph: Graph, backend: Backend, node: Node, proposed: Collection[str]) -> Iterator[Refusal]:
    """Patterns that proposed nothing of their own around the node."""
    supported, _ = supported_nodes(graph, backend)
    for pattern in backend.patterns():
        if pattern.name not in proposed:
            try:
                reason = pattern.why_not(graph, supported, node.index)
            except TooManyWays as error:
                reason = str(error)
            reason = reason or "it fits, but only where a pattern before it does"
            yield Refusal(pattern.name, (node.op_type,), reason)


def _offer(graph: Graph, match: Match, answer: Answer | None) -> Offer:
    operators = _operators(graph, match.nodes)
    if answer is None:
        return Offer(match.pattern, match.variant, operators, None, "not measured")
    if answer.reason:
        return Offer(match.pattern, match.variant, operators, None, answer.reason)
    return Offer(match.pattern, match.variant, operators, Timing(answer.times_ms).median_ms)


def _operators(graph: Graph, nodes: NodeSet) -> tuple[str, ...]:
    return tuple(graph.nodes[index].op_type for index in members(nodes))


def _tensors(graph: Graph, node: Node) -> tuple[str, ...]:
    """Each input and output with its type, constants marked."""
    sides = [("input", name) for name in node.inputs if name] + [("output", name) for name in node.outputs if name]
    return tuple(
        f"{'constant' if name in graph.constants else side} {name}: "
        f"{graph.tensors[name].dtype}{list(graph.tensors[name].shape)}"
        for side, name in sides
    )
