"""``explain``: the backends that can run a node or a region of a run, their costs, and why others cannot; and what a
run pruned, by which rule."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from collage_evo.answer.baselines import read_baselines
from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import Matches, accepts, matches_of, supported_nodes
from collage_evo.backends.registry import device_of
from collage_evo.backends.select import select_backends
from collage_evo.backends.variants import engine_name, rewritten_name
from collage_evo.config import Config
from collage_evo.costs.saved_costs import COSTS, MeasuredCosts
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import WorkFiles
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Failure
from collage_evo.graph.convert.origin import Origin
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Match
from collage_evo.precision.quantise.ranges import read_ranges
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.pruning import RULES, Rule
from collage_evo.report.explain import (
    NOT_MEASURED,
    BackendAnswer,
    Explanation,
    NotTaken,
    Offer,
    Pruned,
    PruningExplanation,
    PruningRule,
    Refusal,
    RegionAnswer,
    RegionExplanation,
    short,
)
from collage_evo.report.finished import RESULT, read_finished, result_in
from collage_evo.report.places import command
from collage_evo.report.result import RegionResult, Result
from collage_evo.report.words import describe_failure
from collage_evo.run.directory import reopen_run
from collage_evo.run.open import LIMITS
from collage_evo.run.profiles import FOLDER
from collage_evo.run.stages.baselines import ARTIFACTS, RECORDED
from collage_evo.run.stages.matches import MATCHES
from collage_evo.run.stages.model import NORMALISED
from collage_evo.run.stages.precision import may_quantise
from collage_evo.run.stages.threads import settled
from collage_evo.run.store import Store
from collage_evo.search.evolution import checkpoint

OF_THE_MACHINE = "this is the full machine's time for a run, with several sessions at once"
"""Note on the time of a single backend in a run for throughput."""


@dataclass(frozen=True)
class ExplainedRun:
    """The search space of a run, as its records have it.

    Attributes:
        config: of the run, with the number of threads that it used.
        backends: those that take part.
        graph: the normalised model.
        origin: where the nodes of the user's file went.
        found: the matches, with those of tuned kernels.
        excluded: engines that are not tried on parts of the model, and why.
        largest: the largest error of what takes part.
        ranges: of the graph's tensors, where int8 with such took part.
        costs: None if the run stopped before it had them.
    """

    config: Config
    backends: Sequence[Backend]
    graph: Graph
    origin: Origin
    found: Matches
    excluded: Mapping[Engine, Failure]
    largest: float
    ranges: Ranges | None
    costs: MeasuredCosts | None

    @classmethod
    def read(cls, run: Path) -> ExplainedRun:
        """Read the records of ``run``, which may have stopped after it found its matches.

        Raises:
            InputError: it has not found them, or it has several profiles.
            UnavailableError: a requested backend cannot be used.
        """
        if (run / FOLDER).is_dir():
            raise InputError(f"{run} has several profiles: give the directory of one, as {run / FOLDER}/0")
        config, store, files = settled(reopen_run(run), run), Store(run), WorkFiles(run / "work")
        limits, normalised = store.get(LIMITS), store.get(NORMALISED)
        enumerated = store.get(MATCHES)
        if limits is None or normalised is None or enumerated is None:
            result = result_in(run)
            if result is not None and result.not_searched:
                raise InputError(f"{run} has no matches, as no search was possible: {result.not_searched}")
            raise InputError(f"{run} has no record of its matches: continue it with {command('resume', run)}")
        graph = normalised.searchable(files).graph
        costs = saved.costs(graph, {}) if (saved := store.get(COSTS)) else None
        return cls(
            config=config,
            backends=select_backends(config.backends.use, config.target),
            graph=graph,
            origin=normalised.origin,
            found=enumerated.found if costs is None else replace(enumerated.found, matches=costs.space.matches),
            excluded=dict(enumerated.excluded),
            largest=limits.measured,
            ranges=read_ranges(files.ranges) if files.ranges.exists() and may_quantise(store, config) else None,
            costs=costs,
        )

    def singles(self, backend: str, node: int) -> list[Match]:
        """The matches of ``backend`` for the single ``node``, unchanged."""
        plain = (match for match in self.found.matches if match.nodes == 1 << node and not match.rewrites)
        return [match for match in plain if match.backend == backend]

    def matches(self, backend: Backend, nodes: NodeSet) -> list[Match]:
        """``nodes`` as one piece of ``backend``, in each variant that the run would offer."""
        target = self.config.target
        return matches_of(self.graph, backend, nodes, self.largest, target, self.ranges, self.excluded)

    def offer(self, match: Match) -> Offer:
        """``match`` as one way to run its nodes, with its cost or the reason why it has none."""
        operators = _operators(self.graph, match.nodes)
        plain = Offer(match.pattern, match.variant, operators, None, NOT_MEASURED, device_of(*match.engine))
        index = self._indices.get(match)
        if self.costs is None or index is None:
            return plain
        table = self.costs.table
        if (failure := table.failures.get(index)) is not None:
            return replace(plain, reason=_with_rule(str(failure), failure))
        if not math.isfinite(ms := table.standalone_ms[index]):
            return plain
        return replace(plain, ms=ms, reason="", estimated=index in self.costs.space.cost.estimated)

    @cached_property
    def _indices(self) -> Mapping[Match, int]:
        if self.costs is None:
            return {}
        timed = self.costs.space.matches[: len(self.costs.table.standalone_ms)]
        return {match: index for index, match in enumerate(timed)}

    def apart_ms(self, options: Sequence[Sequence[Match]]) -> float | None:
        """Cost in ms of nodes one by one, each as the fastest of its ``options``, on the device where that is least.

        None if one is not known.
        """
        offers = [[offer for offer in map(self.offer, matches) if offer.ms is not None] for matches in options]
        by_device = [multimap((offer.device, offer.ms or 0.0) for offer in of_node) for of_node in offers]
        devices = set.intersection(*map(set, by_device)) if by_device else ()
        return min((sum(min(ms[device]) for ms in by_device) for device in devices), default=None)


def explain_node(run: Path, name: str) -> Explanation:
    """Query every backend about node ``name``. Nothing is measured.

    Args:
        run: its directory.
        name: of any node in the user's file; for one that was folded away the answer names the node that absorbed it.
            Also the name of a node's output, or of a node that only the normalised model has.

    Raises:
        InputError: the run has no record of its matches, or its model has no such node.
        UnavailableError: a requested backend cannot be used.
    """
    space = ExplainedRun.read(run)
    graph, origin, nodes = space.graph, space.origin, _by_name(space.graph)
    fate = origin.find(name)
    if fate is None and name not in nodes:
        every = [*(fate.name for fate in origin.fates), *nodes]
        similar = ", ".join(difflib.get_close_matches(name, every, n=3) or every[:3])
        raise InputError(f"the model has no node {name!r}; there are {len(set(every))}, such as {similar}")
    folded = f"{fate.name}: {fate.op_type} {fate.description}" if fate is not None and not fate.is_preserved else ""
    holders = (name,) if fate is None else fate.nodes
    if fate is not None and (fate.constant or len(holders) != 1):
        return Explanation(fate.name, fate.op_type, (), (), folded)
    node = nodes[holders[0]]
    answers = tuple(_answer(space, node, backend) for backend in space.backends)
    return Explanation(node.name, node.op_type, _tensors(graph, node), answers, folded)


def explain_region(run: Path, index: int) -> RegionExplanation:
    """Query every backend about region ``index`` of the answer of ``run``, as one piece. Nothing is measured.

    A region that is the whole model, as in an answer of a single backend, has the times of each single backend.

    Raises:
        InputError: the run has no result, no such region, or no record of its matches.
        UnavailableError: a requested backend cannot be used.
    """
    result = read_finished(run)[0].result
    regions = result.placement
    if not 0 <= index < len(regions):
        raise InputError(f"the answer of {run} has no region {index}: it has 0 to {len(regions) - 1}")
    region = regions[index]
    space = ExplainedRun.read(run)
    graph = space.graph
    is_single = result.answer != "placement"
    nodes = graph.all_nodes if is_single else _nodes_named(graph, region.nodes, run)
    chosen = _chosen(graph, region, nodes, run)
    answers = [_region_answer(space, nodes, backend, chosen) for backend in space.backends]
    if is_single:
        pairs = zip(answers, space.backends, strict=True)
        answers = [replace(one, offers=tuple(_single_offers(result, backend, graph))) for one, backend in pairs]
    return RegionExplanation(
        index,
        region.backend,
        region.variant,
        region.measured_ms,
        tuple((graph.nodes[i].name, graph.nodes[i].op_type) for i in members(nodes)),
        tuple(answers),
        region.lanes,
        region.rewrites,
        is_single,
    )


def explain_pruning(run: Path) -> PruningExplanation:
    """What ``run`` pruned until now, each with the rule that decided, and all rules with their numbers in that run.

    Raises:
        InputError: the run has several profiles.
        UnavailableError: a requested backend cannot be used.
    """
    config, failures = reopen_run(run), [*_failed_baselines(run)]
    if (run / FOLDER).is_dir() or Store(run).get(MATCHES) is not None:
        failures += _failed_parts(ExplainedRun.read(run), run)
    count = Counter((what, reason, failure.rule) for what, reason, failure in failures if failure.rule in RULES)
    return PruningExplanation(
        tuple(Pruned(*one, RULES[one[2]].action, times) for one, times in count.items()),
        tuple(PruningRule(one.name, one.line(_number(one, config)), one.basis, one.key) for one in RULES.values()),
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
        raise InputError(f"the model in {run}/work has no node {missing[0]!r}, which {RESULT} names: run again")
    return node_set(nodes[name].index for name in names)


def _region_answer(space: ExplainedRun, nodes: NodeSet, backend: Backend, chosen: Match) -> RegionAnswer:
    graph = space.graph
    same_backend = chosen.backend == backend.name
    written = (space.offer(chosen),) if same_backend and chosen.rewrites else ()
    supported, refused = supported_nodes(graph, backend)
    if not supported and len(reasons := set(refused.values())) == 1:
        return RegionAnswer(backend.name, written, (), reasons.pop(), None)
    if declined := [(graph.nodes[i], refused[i]) for i in members(nodes) if i in refused]:
        not_taken = tuple(NotTaken(node.name, node.op_type, reason) for node, reason in declined)
        return RegionAnswer(backend.name, written, not_taken, "", None)
    apart = space.apart_ms([space.singles(backend.name, node) for node in members(nodes)])
    if not (verdict := accepts(graph, backend, nodes)):
        return RegionAnswer(backend.name, written, (), verdict.reason, apart)
    matches = space.matches(backend, nodes)
    if same_backend and chosen.family not in {match.engine for match in matches}:
        matches.append(Match(nodes, *chosen.family))  # a tuned one
    return RegionAnswer(backend.name, (*map(space.offer, matches), *written), (), "", apart)


def _single_offers(result: Result, backend: Backend, graph: Graph) -> Iterator[Offer]:
    """The run's measurements of a single backend on the user's own file, in each of its variants."""
    operators = _operators(graph, graph.all_nodes)
    note = OF_THE_MACHINE if result.objective == "throughput" else ""
    for row in result.baselines:
        name, _, variant = row.name.partition("/")
        if name == backend.name:
            variant = variant or "default"
            yield Offer("", variant, operators, row.median_ms, row.reason or note, device_of(backend.name, variant))


def _answer(space: ExplainedRun, node: Node, backend: Backend) -> BackendAnswer:
    def holds(nodes: NodeSet, owner: str) -> bool:
        return owner == backend.name and bool(nodes >> node.index & 1)

    graph, matches_found = space.graph, space.found
    matches = [match for match in matches_found.matches if holds(match.nodes, match.backend)]
    matches.sort(key=lambda match: (match.nodes.bit_count(), match.nodes, match.variant))
    refusals = [
        Refusal(rejected.pattern, _operators(graph, rejected.nodes), rejected.reason)
        for rejected in matches_found.rejected
        if holds(rejected.nodes, rejected.backend)
    ]
    if reason := matches_found.refusals.get(node.index, {}).get(backend.name):
        refusals.insert(0, Refusal("", (node.op_type,), reason))
    for (owner, variant), why in space.excluded.items():
        if owner == backend.name:
            reason = f"variant {variant} takes no part: {_with_rule(why.message, why)}"
            refusals.append(Refusal("", (), reason))
    offers = tuple(map(space.offer, matches))
    return BackendAnswer(backend.name, offers, tuple(refusals), backend.name in matches_found.cut)


def _failed_baselines(run: Path) -> Iterator[tuple[str, str, Failure]]:
    """What failed, why in words, and the failure."""
    for baseline in read_baselines(run / RECORDED, run / ARTIFACTS):
        if (failure := baseline.outcome.failure) is not None:
            yield baseline.name, describe_failure(failure, baseline.backend, baseline.variant), failure


def _failed_parts(space: ExplainedRun, run: Path) -> Iterator[tuple[str, str, Failure]]:
    """The same for engines on parts of the model, matches, and placements of the search."""
    for engine, failure in space.excluded.items():
        yield f"{engine_name(*engine)} on parts of the model", failure.message, failure
    if space.costs is not None:
        for index, failure in space.costs.table.failures.items():
            match = space.costs.space.matches[index]
            what = f"{engine_name(*match.engine)} on {short(_operators(space.graph, match.nodes))}"
            yield what, str(failure), failure
        if checkpoint.exists(run):
            for evaluated in checkpoint.recorded(run, space.costs.space.digest).evaluated.values():
                if evaluated.outcome.failure is not None:
                    yield "a placement", str(evaluated.outcome.failure), evaluated.outcome.failure


def _number(rule: Rule, config: Config) -> float:
    return float(attrgetter(rule.key)(config)) if rule.key else rule.number


def _with_rule(reason: str, failure: Failure) -> str:
    return f"{reason} (by rule {failure.rule})" if failure.rule else reason


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
