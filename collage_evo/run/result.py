"""Puts what the stages found into one result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace

from collage_evo.accuracy.judge import Quality
from collage_evo.accuracy.limits import Limits
from collage_evo.fitness.failure import Failure
from collage_evo.fitness.final.answer import Verdict
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.fitness.final.sequential import Ratio
from collage_evo.fitness.outcome import Outcome
from collage_evo.genome.encoding import decode, place
from collage_evo.genome.search.seeds import Seeds
from collage_evo.graph.ir import members
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.report.reasons import raw_words, told_failure, told_unfit
from collage_evo.report.result import (
    Accuracy,
    CostModelResult,
    FrontPoint,
    Latency,
    LibraryResult,
    Refused,
    Result,
    SearchResult,
    SeedResult,
    ServingResult,
    Speeds,
    Speedup,
    TunedResult,
    TuningResult,
    environment,
    finite,
)
from collage_evo.run.context import RunContext
from collage_evo.run.front import UNRACED, Raced, Tried, finalists, front_points, over_budget
from collage_evo.run.kernel_tuning import Tuned
from collage_evo.run.regions import Placed, region_results
from collage_evo.run.saved_costs import MeasuredCosts
from collage_evo.run.search import Found, named
from collage_evo.run.stages.answer import Answer
from collage_evo.run.stages.held_out import HeldOut
from collage_evo.run.stages.model import tells_errors
from collage_evo.runtime.artifact import read_artifact

BROKEN = "That is over the budget, which nothing that was measured keeps: float32 is closest"
"""What a person has to know of such an answer."""


@dataclass(frozen=True)
class Searched:
    """What the stages of a search gave."""

    model: SearchableModel
    tuned: Sequence[Tuned]
    costs: MeasuredCosts
    seeds: Seeds
    found: Found

    @property
    def tried(self) -> Tried:
        """What was measured, for the front."""
        return Tried(self.costs.space, self.found.evaluated)

    def at(self, key: str | None) -> Placed | None:
        """The placement with ``key`` among what was measured; None for no key."""
        if key is None:
            return None
        space = self.costs.space
        return Placed(space.graph, decode(self.found.evaluated[key].genome, space))

    def finalists(self, limits: Limits, count: int, answered: str = "") -> Searched:
        """With those placements only ``ranked`` that race: see :func:`collage_evo.run.front.finalists`."""
        racing = finalists(self.tried, self.found.ranked, limits, count, answered)
        return replace(self, found=replace(self.found, ranked=racing))


@dataclass(frozen=True)
class NotSearched:
    """Why a model only runs whole."""

    reason: str


def assemble_result(
    run: RunContext,
    model: PreparedModel,
    searched: Searched | NotSearched,
    baselines: Sequence[Baseline],
    verdict: Verdict,
    answer: Answer,
    held_out: HeldOut,
    speeds: Speeds | None = None,
    libraries: Sequence[LibraryResult] = (),
) -> Result:
    """One :class:`Result` from everything a run produced.

    Of ``baselines``, and of what the search found, those that do not keep to the run's limits did not race; of those
    that did, some broke them on the ``held_out`` samples. ``speeds``: of the answer, alone and on the full machine.
    ``libraries``: what it replaces.
    """
    config = run.config
    done = searched if isinstance(searched, Searched) else None
    best = Latency.of("best", verdict.final.timing(verdict.answer))
    raced = _raced(done.found if done else None, verdict, held_out.broke)
    front = front_points(done.tried if done else None, baselines, raced, run.limits)
    over = {point.key or point.single: told for point in front if (told := over_budget(point))}
    seed_rows = _seed_results(done, best, {**raced.fates, **over}) if done else []
    return Result(
        model={
            "name": model.name,
            "source": config.model.source,
            "sha256": model.digest,
            "nodes": len(done.model.graph.nodes if done else model.original.graph.node),
            "normalisation_error": done.model.normalisation_error if done else None,
            "noise": finite(model.noise),
        },
        target={
            "device": run.target.device,
            "accelerator": run.target.accelerator,
            "threads": run.target.threads,
            "cores": list(run.target.cores),
        },
        environment=environment(run.target.machine.cpu, _versions(baselines, answer)),
        baselines=[*(_baseline(b, verdict, over.get(b.name, "")) for b in baselines), *_greedy(seed_rows)],
        seeds=seed_rows,
        best=best,
        answer=verdict.best_single if verdict.is_single else "placement",
        best_single=verdict.best_single,
        speedup_over_best_single=_speedup(verdict.speedup, verdict, by_definition=verdict.is_single),
        candidate_speedup=_speedup(verdict.candidate_speedup, verdict, by_definition=not raced.keys),
        numerics={
            "max_relative_error": finite(answer.relative_error),
            "max_abs_error": finite(answer.max_abs_error),
            "tolerance": finite(run.limits.tolerance),
            "inputs": config.verify.inputs,
        },
        placement=region_results(answer, model, done.at(raced.keys.get(verdict.answer)) if done else None),
        search=_search(done.found, done.costs) if done else None,
        cost_model=_cost_model(done.costs, done.seeds, done.found, verdict) if done else None,
        wall_seconds=run.seconds,
        tuning=[_tuning(one, done.costs) for one in done.tuned] if done else [],
        accuracy=_accuracy(run, answer, held_out, next((p for p in front if p.answer), None), tells_errors(model)),
        front=front,
        notes=(*model.notes, *_running_notes(verdict, answer)),
        not_searched=searched.reason if isinstance(searched, NotSearched) else "",
        serving=_serving(baselines, verdict, answer),
        objective=config.search.objective,
        speeds=speeds,
        libraries=libraries,
    )


def _speedup(ratio: Ratio, verdict: Verdict, by_definition: bool) -> Speedup:
    return Speedup(ratio.estimate, ratio.low, ratio.high, ratio.rounds, by_definition, verdict.final.seconds)


def _accuracy(
    run: RunContext, answer: Answer, held_out: HeldOut, point: FrontPoint | None, known: bool
) -> Accuracy:
    """What the answer loses, if errors can be ``known``; its ``point`` says how much on the samples of the search."""
    judged, sampled, limits = held_out.judged if known else None, held_out.sampled, run.limits
    error_search = finite(answer.relative_error) if point is None else point.error
    interval = None
    if judged is not None and judged.over == "all" and judged.low is not None and judged.high is not None:
        interval = (judged.low, judged.high)
    bounded = judged is not None and bool(judged.singles) and 0.0 < limits.budget < math.inf
    return Accuracy(
        metric=run.config.accuracy.metric,
        budget=limits.asked,
        largest=finite(limits.budget) or None,
        error_search=error_search if known else None,
        error_held_out=None if judged is None else finite(judged.error),
        interval=interval,
        samples={
            "calibration": sampled.calibration,
            "search": sampled.search or run.config.verify.inputs,
            "held_out": 0 if judged is None else judged.samples,
        },
        random=sampled.random,
        notes=(*_noise_notes(limits), *([] if point is None or point.feasible else [BROKEN]), *held_out.notes),
        over=run.setting.over,
        held_out=() if judged is None else tuple(map(_finite, judged.qualities(run.config.accuracy.metric))),
        over_budget=judged.beyond(limits.budget) if judged is not None and bounded else None,
    )


def _finite(found: Quality) -> Quality:
    """``found`` as JSON can have it: None for what is infinite."""
    return Quality(found.name, *(finite(value) for value in astuple(found)[1:]))


def _noise_notes(limits: Limits) -> tuple[str, ...]:
    """That a budget is less than how far right results may be from each other, if it is."""
    if not isinstance(limits.asked, float) or limits.budget <= limits.asked:
        return ()
    return (f"Libraries differ on this model in float32 too, so errors up to {limits.budget:.1e} keep the budget",)


def _baseline(baseline: Baseline, verdict: Verdict, over: str) -> Latency:
    if baseline.name in verdict.final.rounds:
        return Latency.of(baseline.name, verdict.final.timing(baseline.name))
    latency = _latency(baseline.name, baseline.outcome)
    return replace(latency, reason=over) if over else latency


def _latency(name: str, outcome: Outcome) -> Latency:
    failure, backend = outcome.failure, name.partition("/")[0] if ":" not in name else ""
    reason = "" if failure is None else told_failure(failure, backend)
    detail = raw_words(failure, backend)
    return Latency(name, outcome.latency_ms, outcome.p10_ms, outcome.p90_ms, outcome.n, reason, detail)


def _serving(baselines: Sequence[Baseline], verdict: Verdict, answer: Answer) -> list[ServingResult]:
    """What each backend alone and the answer take."""
    artifacts = {b.name: b.artifact for b in baselines if b.outcome.latency_ms is not None}
    rows = []
    for name, artifact, entrant in (
        *((name, path, name) for name, path in artifacts.items()),
        ("best", answer.artifact, verdict.answer),
    ):
        took = verdict.final.serving.get(entrant)
        size = sum(path.stat().st_size for path in artifact.rglob("*") if path.is_file())
        peak_bytes, load_ms = (None, None) if took is None else (took.peak_bytes, took.load_ms)
        rows.append(ServingResult(name, size, peak_bytes, load_ms))
    return rows


def _running_notes(verdict: Verdict, answer: Answer) -> list[str]:
    """What of the answer, and of those that it raced with, does not run as well as it might."""
    rivals = {name: took.notes for name, took in verdict.final.serving.items() if name != verdict.answer}
    return [f"{name}: {note}" for name, notes in ({"the answer": answer.notes} | rivals).items() for note in notes]


def _greedy(seeds: Sequence[SeedResult]) -> list[Latency]:
    """The fastest greedy partition, as measured in the search."""
    measured = [s.latency for s in seeds if s.kind.startswith("greedy") and s.latency.median_ms is not None]
    return [min(measured, key=lambda latency: latency.median_ms or 0.0)] if measured else []


def _raced(found: Found | None, verdict: Verdict, broke: Mapping[str, str]) -> Raced:
    """What became of each placement that raced for being the answer; nobody did where no placement was compiled.

    ``broke``: by name, how those broke the budget on held-out samples that were faster.
    """
    keys = {name: placement.key for name, placement in named(found.ranked).items()} if found else {}
    fates = dict.fromkeys(keys.values(), "it was this fast when timed briefly, and not in the thorough comparison")
    failed = verdict.final.failed
    fates |= {
        key: f"it failed when it was checked: {told_failure(failed[n])}" for n, key in keys.items() if n in failed
    }
    if verdict.candidate in keys:
        fates[keys[verdict.candidate]] = (
            "it was this fast when timed briefly; compared thoroughly, not faster than all libraries for certain"
            if verdict.is_single
            else "the answer, as the search timed it"
        )
    return Raced(verdict, keys, fates | {keys.get(name, name): told for name, told in broke.items()})


def _seed_results(searched: Searched, best: Latency, fates: Mapping[str, str]) -> list[SeedResult]:
    """Seeds as measured in the search; one that seems faster than the answer says why it is not the answer.

    ``fates`` has that by key, of those that raced or do not keep the budget.
    """
    rows, space = [], searched.costs.space
    for kind, genome in searched.seeds.made:
        placement = decode(genome, space)
        outcome = searched.found.outcomes.get(placement.key)
        latency = _latency(kind, outcome) if outcome else Latency(kind, reason="not timed: the search was over")
        if outcome and outcome.ok and (latency.median_ms or math.inf) < (best.median_ms or math.inf):
            latency = replace(latency, reason=fates.get(placement.key, UNRACED))
        rows.append(SeedResult(kind, space.predict(placement), latency))
    return rows


def _search(found: Found, costs: MeasuredCosts) -> SearchResult:
    unfit = told_unfit(o.failure for o in found.outcomes.values() if not o.ok and o.failure is not None)
    state = found.state
    return SearchResult(
        evaluations=state.evaluations,
        unfit=unfit,
        generations=state.generation,
        cache_hits=costs.cache_hits,
        wall_seconds=state.seconds,
        time_to_best_seconds=state.best_seconds,
        evaluations_to_best=state.best_evaluation,
        convergence=found.convergence,
    )


def _cost_model(costs: MeasuredCosts, seeds: Seeds, found: Found, verdict: Verdict) -> CostModelResult:
    space = costs.space
    dp = place(seeds.dp.covers[0].matches, space)
    predicted = space.predict(dp)
    measured = found.outcomes[dp.key].latency_ms if dp.key in found.outcomes else None
    final = verdict.final
    loss = None
    if verdict.candidate in final.rounds:
        loss = final.timing(verdict.candidate).median_ms - final.timing(verdict.best_single).median_ms
    return CostModelResult(
        matches=dict(Counter(match.backend for match in space.matches)),
        refused=_refused(costs),
        measured=costs.measured,
        estimated=len(costs.space.cost.estimated),
        disturbed=costs.disturbed,
        cache_hits=costs.cache_hits,
        dp_predicted_ms=predicted,
        dp_measured_ms=measured,
        additive_error=None if measured is None else abs(measured - predicted) / measured,
        apparent_loss_ms=loss,
        borders={
            "/".join(engine): {"fixed_ms": border.fixed_ms, "ms_per_mb": border.ms_per_mb}
            for engine, border in space.cost.for_sessions(1).borders.items()
        },
        copies=asdict(space.cost.for_sessions(1).copies) if space.cost.on_device else {},
    )


def _refused(costs: MeasuredCosts) -> dict[str, dict[str, Refused]]:
    """What went wrong with matches, by engine and kind of fault."""
    found: dict[str, dict[str, list[Failure]]] = {}
    for index, failure in costs.table.failures.items():
        kinds = found.setdefault("/".join(costs.space.matches[index].engine), {})
        kinds.setdefault(failure.fault.value, []).append(failure)
    return {
        engine: {kind: Refused(len(failures), str(failures[0])) for kind, failures in kinds.items()}
        for engine, kinds in found.items()
    }


def _tuning(tuned: Tuned, costs: MeasuredCosts) -> TuningResult:
    space = costs.space
    # Regions that the refinement measured come after the matches and have no standalone cost; an estimate is none.
    cost = {
        (match.nodes, match.engine): ms
        for index, (match, ms) in enumerate(zip(space.matches, costs.table.standalone_ms, strict=False))
        if index not in costs.table.estimated
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


def _versions(baselines: Sequence[Baseline], answer: Answer) -> dict[str, str]:
    versions = {p.backend: p.backend_version for p in read_artifact(answer.artifact).program.pieces}
    for baseline in baselines:
        if baseline.artifact.exists():
            versions |= {p.backend: p.backend_version for p in read_artifact(baseline.artifact).program.pieces}
    return versions
