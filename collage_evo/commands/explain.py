"""``explain``: the backends that can run a node or a region, their costs, and why others cannot."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import accepts
from collage_evo.backends.registry import device_of
from collage_evo.backends.variants import rewritten_name
from collage_evo.commands.explained import Explained
from collage_evo.config import Config
from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set
from collage_evo.patterns.match import Match
from collage_evo.report.explain import (
    BackendAnswer,
    Explanation,
    NotTaken,
    Offer,
    Refusal,
    RegionAnswer,
    RegionExplanation,
)
from collage_evo.report.result import RegionResult, Result, read_finished

OF_THE_MACHINE = "this is the full machine's time for a run, with several sessions at once"
"""Note on the time of a single backend in a run for throughput."""


def explain_node(config: Config, name: str, run: Path | None = None) -> Explanation:
    """Query every backend about node ``name``. Nothing is measured.

    Args:
        config: the model, the target and the backends.
        name: of any node in the user's file; for one that was folded away the answer names the node that absorbed it.
            Also the name of a node's output, or of a node that only the normalised model has.
        run: the directory of a run whose own costs take precedence over those that all runs share.

    Raises:
        InputError: the model cannot be used, or has no such node.
        UnavailableError: a requested backend cannot be used.
    """
    compared = Explained.of(config, run)
    graph, origin, nodes = compared.graph, compared.origin, _by_name(compared.graph)
    fate = origin.find(name)
    if fate is None and name not in nodes:
        raise _unknown(name, [*(fate.name for fate in origin.fates), *nodes])
    folded = f"{fate.name}: {fate.op_type} {fate.description}" if fate is not None and not fate.is_preserved else ""
    holders = (name,) if fate is None else fate.nodes
    if fate is not None and (fate.constant or len(holders) != 1):
        return Explanation(fate.name, fate.op_type, (), (), folded)
    node = nodes[holders[0]]
    answers = tuple(_answer(compared, node, backend) for backend in compared.backends)
    return Explanation(node.name, node.op_type, _tensors(graph, node), answers, folded)


def explain_region(config: Config, index: int, run: Path) -> RegionExplanation:
    """Query every backend about region ``index`` of the answer of ``run``, as one piece. Nothing is measured.

    A region that is the whole model, as in an answer of a single backend, has the times of each single backend.

    Raises:
        InputError: the run has no result, or no such region, or its model has changed since.
        UnavailableError: a requested backend cannot be used.
    """
    result = read_finished(run)[0].result
    regions = result.placement
    if not 0 <= index < len(regions):
        raise InputError(f"the answer of {run} has no region {index}: it has 0 to {len(regions) - 1}")
    region = regions[index]
    compared = Explained.of(config, run)
    graph = compared.graph
    is_single = result.answer != "placement"
    nodes = graph.all_nodes if is_single else _nodes_named(graph, region.nodes, run)
    chosen = _chosen(graph, region, nodes, run)
    answers = []
    for backend in compared.backends:
        answer = _region_answer(compared, nodes, backend, chosen)
        if is_single:
            answer = replace(answer, offers=tuple(_single_offers(result, backend, graph)))
        answers.append(answer)
    return RegionExplanation(
        index,
        region.backend,
        region.variant,
        region.measured_ms,
        tuple((graph.nodes[i].name, graph.nodes[i].op_type) for i in members(nodes)),
        tuple(answers),
        region.lanes,
        region.rewrites,
    )


def _chosen(graph: Graph, region: RegionResult, nodes: NodeSet, run: Path) -> Match:
    """A region of a result as one match."""
    written, variant = region.rewrites, region.variant
    sites = tuple(sorted((one.rewrite, _nodes_named(graph, one.nodes, run)) for one in written))
    name = rewritten_name(variant, written[0].rewrite) if written else variant
    return Match(nodes, region.backend, name, sites, base=variant if written else "")


def _by_name(graph: Graph) -> dict[str, Node]:
    return {name: node for node in graph.nodes for name in (*node.names, node.name)}


def _nodes_named(graph: Graph, names: Sequence[str], run: Path) -> NodeSet:
    nodes = _by_name(graph)
    if missing := [name for name in names if name not in nodes]:
        raise InputError(f"the model has no node {missing[0]!r}, which {run} placed: it has changed since; run again")
    return node_set(nodes[name].index for name in names)


def _unknown(name: str, names: Sequence[str]) -> InputError:
    near = difflib.get_close_matches(name, names, n=3) or names[:3]
    return InputError(f"the model has no node {name!r}; there are {len(set(names))}, such as {', '.join(near)}")


def _region_answer(compared: Explained, nodes: NodeSet, backend: Backend, chosen: Match) -> RegionAnswer:
    graph, costs = compared.graph, compared.costs
    same_backend = chosen.backend == backend.name
    written = (costs.offer(chosen),) if same_backend and chosen.rewrites else ()
    verdicts = {i: backend.takes(graph, graph.nodes[i]) for i in members(nodes)}
    if not all(verdicts.values()):
        declined = [(graph.nodes[i], verdict.reason) for i, verdict in verdicts.items() if not verdict]
        not_taken = tuple(NotTaken(node.name, node.op_type, reason) for node, reason in declined)
        return RegionAnswer(backend.name, written, not_taken, "", None)
    apart = costs.apart_ms([compared.singles(backend.name, node) for node in members(nodes)])
    if not (verdict := accepts(graph, backend, nodes)):
        return RegionAnswer(backend.name, written, (), verdict.reason, apart)
    matches = compared.matches(backend, nodes)
    if same_backend and chosen.family not in {match.engine for match in matches}:
        matches.append(Match(nodes, *chosen.family))  # a tuned one
    return RegionAnswer(backend.name, (*map(costs.offer, matches), *written), (), "", apart)


def _single_offers(result: Result, backend: Backend, graph: Graph) -> Iterator[Offer]:
    """The run's measurements of a single backend on the user's own file, in each of its variants."""
    operators = _operators(graph, graph.all_nodes)
    note = OF_THE_MACHINE if result.objective == "throughput" else ""
    for row in result.baselines:
        name, _, variant = row.name.partition("/")
        if name == backend.name:
            variant = variant or "default"
            device = device_of(backend.name, variant)
            yield Offer("", variant, operators, row.median_ms, row.reason or note, device)


def _answer(compared: Explained, node: Node, backend: Backend) -> BackendAnswer:
    def holds(nodes: NodeSet, owner: str) -> bool:
        return owner == backend.name and bool(nodes >> node.index & 1)

    graph, matches_found = compared.graph, compared.found
    matches = [match for match in matches_found.matches if holds(match.nodes, match.backend)]
    matches.sort(key=lambda match: (match.nodes.bit_count(), match.nodes, match.variant))
    refusals = [
        Refusal(rejected.pattern, _operators(graph, rejected.nodes), rejected.reason)
        for rejected in matches_found.rejected
        if holds(rejected.nodes, rejected.backend)
    ]
    if reason := matches_found.refusals.get(node.index, {}).get(backend.name):
        refusals.insert(0, Refusal("", (node.op_type,), reason))
    slow = {variant: why for (owner, variant), why in compared.left_out.items() if owner == backend.name}
    refusals += [Refusal("", (), f"variant {variant} takes no part: {why}") for variant, why in slow.items()]
    offers = tuple(map(compared.costs.offer, matches))
    return BackendAnswer(backend.name, offers, tuple(refusals), backend.name in matches_found.cut)


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
