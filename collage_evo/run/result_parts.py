"""Parts of a run's result: its seeds, libraries, search, costs and tuning, and the regions of its answer."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from importlib import metadata
from typing import Any

from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.candidates import Tried
from collage_evo.answer.sequential import Ratio
from collage_evo.backends.capabilities import lanes_of
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.backends.select import arithmetics_of, exact_arithmetic
from collage_evo.backends.variants import Arithmetic
from collage_evo.costs.kernel_tuning import Tuned
from collage_evo.costs.saved_costs import MeasuredCosts
from collage_evo.genome.encoding import decode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.convert.origin import node_names
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.graph.prepare import PreparedModel
from collage_evo.hardware.slots import usable_cores
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Placement
from collage_evo.precision.transforms.edits import nodes_in
from collage_evo.report.places import command_line
from collage_evo.report.result import (
    CostModelResult,
    Latency,
    LibraryResult,
    Operator,
    Refused,
    RegionResult,
    RewrittenNodes,
    SavedResult,
    SearchResult,
    SeedResult,
    Speedup,
    TunedResult,
    TuningResult,
    finite,
)
from collage_evo.report.words import arithmetic, describe_failure, describe_parts, describe_unfit
from collage_evo.run.front import UNRACED, Raced, parts_of
from collage_evo.run.search import Placed, Searched
from collage_evo.run.stages.answer import Answer
from collage_evo.runtime.artifact import read_artifact
from collage_evo.search.evolution.origin import Origin


def environment(cpu: str, backends: Mapping[str, str]) -> dict[str, Any]:
    """Versions and machine of the measurement, its date, and its command."""
    libraries = {name: metadata.version(name) for name in ("collage-evo", "numpy", "onnx", "deap", "joblib")}
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": cpu,
        "cores": len(usable_cores()),
        "libraries": libraries,
        "backends": dict(backends),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command_line(),
    }


def seed_results(
    made: Sequence[tuple[Origin, Genome]], tried: Tried, raced: Raced, reasons: Mapping[str, str], scale: float
) -> list[SeedResult]:
    """The seeds that were ``made``, as timed in the final race, else in the search; one that seems faster than the
    answer has the reason why it is not.

    ``reasons``: these by key, of placements that raced or exceed the budget. ``scale``: of times of the search.
    """
    rows, final = [], raced.verdict.final
    names = {key: name for name, key in raced.keys.items() if name in final.rounds}
    answer_ms = final.timing(raced.verdict.answer).median_ms
    for origin, genome in made:
        placement, name = decode(genome, tried.space), str(origin)
        key, evaluated = placement.key, tried.evaluated.get(placement.key)
        if evaluated is None:
            latency = Latency(name, reason="not timed: the search was over")
        elif key in names:
            latency = Latency.of(name, final.timing(names[key]))
        else:
            latency = latency_of(name, evaluated.outcome).times(scale)
        if evaluated and evaluated.outcome.ok and (latency.median_ms or math.inf) < answer_ms:
            latency = replace(latency, reason=reasons.get(key, UNRACED))
        what = describe_parts(parts_of(placement))
        rows.append(SeedResult(origin, tried.space.predict(placement) * scale, latency, what))
    return rows


def latency_of(name: str, outcome: Outcome, backend: str = "", variant: str = "") -> Latency:
    """Latency in a search, or in the measurement of a baseline in ``backend`` and ``variant``, of the contestant with
    this ``name``."""
    failure = outcome.failure
    reason = "" if failure is None else describe_failure(failure, backend, variant)
    detail = failure.raw_text if failure is not None else ""
    return Latency(name, outcome.latency_ms, outcome.p10_ms, outcome.p90_ms, outcome.n, reason, detail)


def library_results(
    verdict: Verdict, defaults: Sequence[Baseline], level: float, budget: float, excluded: Collection[str] = ()
) -> tuple[LibraryResult, ...]:
    """Speed-up of the answer over each library of ``defaults``, from the race that it won.

    ``level``: of the intervals. ``excluded``: names of those that exceeded the ``budget`` after the race.
    """
    final, rows = verdict.final, []
    speedups = {verdict.best_single: verdict.speedup, verdict.answer: ITSELF}
    for library in defaults:
        if library.name in final.rounds:
            ratio = speedups.get(library.name) or final.ratio(library.name, verdict.answer, 1.0 - level)
            speedup = speedup_of(ratio, verdict, level, ratio is ITSELF)
            keeps = library.keeps(budget) and library.name not in excluded
            ms, error = final.timing(library.name).median_ms, finite(library.outcome.error)
            rows.append(LibraryResult(library.name, library.backend, library.variant, ms, error, speedup, keeps))
    return tuple(rows)


def speedup_of(ratio: Ratio, verdict: Verdict, level: float, by_definition: bool) -> Speedup:
    """A ratio of the final race of ``verdict``, with the ``level`` of its interval."""
    return Speedup(ratio.estimate, ratio.low, ratio.high, ratio.rounds, by_definition, verdict.final.seconds, level)


def search_result(searched: Searched, skipped: bool, scale: float) -> SearchResult:
    """Effort of the search, or of a run that ``skipped`` it, and the times of its improvements; ``scale``: of its
    times."""
    record = searched.record
    unfit = describe_unfit(o.failure for o in record.outcomes.values() if not o.ok and o.failure is not None)
    state = record.state
    return SearchResult(
        evaluations=state.evaluations,
        unfit=unfit,
        generations=state.generation,
        cache_hits=searched.costs.cache_hits,
        wall_seconds=state.seconds,
        time_to_best_seconds=state.best_seconds,
        evaluations_to_best=state.best_evaluation,
        convergence=[{**point, "best_ms": point["best_ms"] * scale} for point in record.convergence],
        skipped=skipped,
    )


def cost_model_result(searched: Searched, scale: float) -> CostModelResult:
    """The search's matches, and the error of the additive model; ``scale``: of the search's times."""
    costs, space, outcomes = searched.costs, searched.costs.space, searched.record.outcomes
    dp = place(searched.seeds.dp.covers[0].matches, space)
    predicted, one_session = space.predict(dp), space.cost.for_sessions(1)
    measured = outcomes[dp.key].latency_ms if dp.key in outcomes else None
    return CostModelResult(
        matches=dict(Counter(match.backend for match in space.matches)),
        refused=_refused(costs),
        measured=costs.measured,
        estimated=len(space.cost.estimated),
        contended=costs.contended,
        cache_hits=costs.cache_hits,
        dp_predicted_ms=predicted * scale,
        dp_measured_ms=None if measured is None else measured * scale,
        additive_error=None if measured is None else abs(measured - predicted) / measured,
        borders={
            "/".join(engine): {"fixed_ms": border.fixed_ms, "ms_per_mb": border.ms_per_mb}
            for engine, border in one_session.borders.items()
        },
        copies={"to_device": asdict(one_session.copies.there), "to_host": asdict(one_session.copies.back)}
        if one_session.off_host
        else {},
    )


def _refused(costs: MeasuredCosts) -> dict[str, dict[str, Refused]]:
    """Failures of matches, by engine and kind of fault."""
    failures = costs.table.failures.items()
    by_engine = multimap(("/".join(costs.space.matches[index].engine), failure) for index, failure in failures)
    refused = {engine: multimap((one.fault.value, one) for one in ones) for engine, ones in by_engine.items()}
    return {
        engine: {kind: Refused(len(ones), str(ones[0])) for kind, ones in kinds.items()}
        for engine, kinds in refused.items()
    }


def tuning_result(tuned: Tuned, costs: MeasuredCosts) -> TuningResult:
    """Trials and gains of tuning a backend's kernels."""
    space = costs.space
    # Regions that the refinement measured follow the matches and have no standalone cost; an estimate is none.
    cost = {
        (match.nodes, match.engine): ms
        for index, (match, ms) in enumerate(zip(space.matches, costs.table.standalone_ms, strict=False))
        if index not in space.cost.estimated
    }
    return TuningResult(
        tuned.backend,
        tuned.variant,
        tuned.trials,
        tuned.new,
        tuned.seconds,
        kernels={key: kernel for key, kernel in tuned.kernels.items() if math.isfinite(kernel.untuned_ms)},
        structures=[
            TunedResult(
                tuple(space.graph.nodes[index].name for index in members(structure.nodes)),
                structure.count,
                structure.untuned_ms,
                finite(cost.get((structure.nodes, (tuned.backend, tuned.variant)))),
                finite(structure.other_ms),
                structure.bound_ms,
                structure.kernels,
            )
            for structure in tuned.structures
        ],
    )


def region_results(
    answer: Answer, model: PreparedModel, placed: Placed | None, best_ms: float | None = None
) -> list[RegionResult]:
    """The regions of ``answer``; ``placed`` is None if one backend runs the user's own file.

    Their times, which another process took, add up to ``best_ms``, if that is given.
    """
    pieces, rows = read_artifact(answer.artifact).program.pieces, []
    scale = best_ms / sum(answer.region_ms) if best_ms and answer.region_ms else 1.0
    for index, (piece, its_ms) in enumerate(zip(pieces, answer.region_ms or (None,) * len(pieces), strict=True)):
        ms = its_ms and its_ms * scale
        int8, rewrites = tuple[str, ...](), tuple[RewrittenNodes, ...]()
        inside: list[tuple[tuple[str, ...], str, str]] = []
        if placed is None:
            computes = arithmetic(piece.backend, piece.variant).value
            named = zip(node_names(model.original), model.original.graph.node, strict=True)
            inside += [((name,), node.op_type, computes) for name, node in named]
        else:
            region, graph = placed.placement.regions[index], placed.graph  # pieces are in the order of regions
            precisions = {i: kind.value for kind, nodes in arithmetics_of(region) for i in members(nodes)}
            inside += [(graph.nodes[i].names, graph.nodes[i].op_type, precisions[i]) for i in members(region.nodes)]
            int8 = _names(graph, nodes_in(region.numerics, Arithmetic.INT8))
            rewrites = tuple(RewrittenNodes(name, _names(graph, site)) for name, site in region.rewrites)
        device = device_of(piece.backend, piece.variant)
        lanes = lanes_of(get_backend(piece.backend), piece.directory)
        kinds = {name: kind for names, kind, _ in inside for name in names}
        spent_ms = node_times(kinds, [kernel[1:] for kernel in answer.kernels if kernel[0] == index], ms or 0.0)
        operators = [
            Operator(kind, computes, names[0], sum(spent_ms[name] for name in names) if spent_ms else None)
            for names, kind, computes in inside
        ]
        engine = (piece.backend, piece.variant, piece.nodes)
        rows.append(RegionResult(*engine, ms, int8, device, lanes, rewrites, tuple(operators)))
    return rows


def node_times(
    kinds: Mapping[str, str], kernels: Sequence[tuple[Sequence[str], float]], whole_ms: float
) -> dict[str, float]:
    """The time of each node in a region that takes ``whole_ms``; empty if no kernel tells.

    Args:
        kinds: kind of operator by name of node.
        kernels: names of nodes in each kernel, and its time with the profiler. That is the time of the heavy
            operators among them in equal parts, if there are any: other ones are fused into these.
        whole_ms: the time of all kernels together without the profiler.
    """
    times_ms, together = dict.fromkeys(kinds, 0.0), sum(ms for _, ms in kernels)
    for names, ms in kernels if together else ():  # a profile has whole microseconds: of a tiny model all may be 0
        inside = [name for name in names if name in kinds]
        for name in (owners := [name for name in inside if kinds[name] in HEAVY] or inside):
            times_ms[name] += ms / together * whole_ms / len(owners)
    return times_ms if together else {}


def saved_results(
    tried: Tried, placement: Placement, best_ms: float, float32_ms: Mapping[str, float]
) -> list[SavedResult]:
    """What the lower precisions of ``placement`` save, and their shares of the predicted error.

    Args:
        tried: what the search knows of costs and sensitivities.
        placement: the answer.
        best_ms: its median in the final comparison.
        float32_ms: of the whole model in float32, by backend, on the same scale.
    """
    space, costs = tried.space, tried.space.cost.match_ms
    lower: list[tuple[tuple[str, str], tuple[int, float, float]]] = []
    exact = multimap(
        ((match.backend, match.nodes), costs[index])
        for index in space.usable
        if exact_arithmetic(match := space.matches[index])
    )
    for index in (match for region in placement.regions for match in region.matches):
        match = space.matches[index]
        computes, nodes = arithmetics_of(match)[-1]  # by name: what is written into others comes last
        if computes is not Arithmetic.FLOAT32:
            kind = max((space.graph.nodes[node].op_type for node in members(nodes)), key=HEAVY.__contains__)
            float32 = (min(exact.get((match.backend, 1 << node), [math.inf])) for node in members(match.nodes))
            saved_ms = sum(float32) - costs[index]
            lower.append(((computes.value, kind), (nodes.bit_count(), saved_ms, tried.error2([index]))))
    backend, *others = {region.backend for region in placement.regions}
    whole_ms = math.inf if others else float32_ms.get(backend, math.inf)
    saved, error2 = (sum(figures[which] for _, figures in lower) for which in (1, 2))
    scale = (whole_ms - best_ms) / saved if 0.0 < saved < math.inf else math.inf
    rows = []
    for of_kind, several in multimap(lower).items():
        count, ms, share = map(sum, zip(*several, strict=True))
        known_ms = scale * ms if math.isfinite(scale * ms) else None
        rows.append(SavedResult(*of_kind, count, known_ms, share / (error2 or 1.0)))
    return sorted(rows, key=lambda row: (-row.error_share, -(row.saved_ms or 0.0)))


def _names(graph: Graph, nodes: NodeSet) -> tuple[str, ...]:
    return tuple(graph.nodes[node].name for node in members(nodes))
