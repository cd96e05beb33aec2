"""Result of a run, assembled in one pass from the records of its stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from collage_evo.accuracy.judge import Quality
from collage_evo.answer.answer import Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.backends.select import arithmetic_of
from collage_evo.files import files_in
from collage_evo.graph.prepare import PreparedModel
from collage_evo.hardware.processor import level as held_level
from collage_evo.multimap import multimap
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.report.result import Accuracy, FrontPoint, Latency, Result, SeedResult, ServingResult, Speeds, finite
from collage_evo.report.sizes import LatencyBySize
from collage_evo.report.words import title
from collage_evo.run.budget import SEARCH_SKIPPED
from collage_evo.run.context import RunContext
from collage_evo.run.front import Raced, Scales, front_points, over_budget
from collage_evo.run.objectives import further_bounds
from collage_evo.run.result_parts import (
    cost_model_result,
    environment,
    latency_of,
    library_results,
    region_results,
    saved_results,
    search_result,
    seed_results,
    speedup_of,
    tuning_result,
)
from collage_evo.run.search import NotSearched, Searched
from collage_evo.run.stages.answer import Answer
from collage_evo.run.stages.held_out import HeldOut
from collage_evo.run.stages.model import reports_errors
from collage_evo.run.stages.threads import THREADS
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.runner import needs_proof
from collage_evo.search.evolution.origin import Way

BROKEN = "The answer exceeds the budget, which nothing that was measured meets: float32 is closest"
"""Note on such an answer."""


def run_result(
    run: RunContext,
    model: PreparedModel,
    found: Searched | NotSearched,
    baselines: Sequence[Baseline],
    defaults: Sequence[Baseline],
    verdict: Verdict,
    held_out: HeldOut,
    answer: Answer,
    speeds: Speeds | None,
) -> Result:
    """The content of ``result.json`` of a finished run.

    Those of ``baselines``, and of ``found``, that exceed the limits of ``run`` did not race; of those that did, some
    exceeded them on the ``held_out`` samples. ``speeds``: of the answer, in a single session and on the full machine.
    ``defaults``: of the libraries that it replaces.
    """
    searched = found if isinstance(found, Searched) else None
    excluded = {name: one.reason for name, one in held_out.excluded.items()}
    raced = Raced(verdict, found.keys, {**excluded, **held_out.slow})
    scales = Scales.of(found.tried, baselines, raced)
    bounds = {raced.keys.get(name, name): one.error for name, one in held_out.excluded.items()}
    points = front_points(found.tried, baselines, raced, run.limits, scales, further_bounds(run))
    front = tuple(replace(point, held_out=finite(bounds.get(point.key or point.single))) for point in points)
    over = {point.key or point.single: over_budget(point) for point in front if not point.feasible}
    broke = excluded_notes(front, raced.keys, excluded)
    left_out = excluded_notes(front, raced.keys, held_out.slow)
    skipped = run.store.get(SEARCH_SKIPPED) or False
    seeds = []
    if searched is not None:
        reasons = raced.fates | over
        seeds = seed_results(searched.seeds.made, searched.tried, raced, reasons, scales.search)
    singles = [_baseline(one, verdict, scales.baselines, over.get(one.name, "")) for one in baselines]
    threads, level = run.store.get(THREADS), run.config.policy.race_level
    placed, best_ms = found.at(raced.keys.get(verdict.answer)), verdict.final.timing(verdict.answer).median_ms
    float32_ms = multimap(
        (one.backend, latency.median_ms)
        for one, latency in zip(baselines, singles, strict=True)
        if latency.median_ms is not None and arithmetic_of(one.backend, one.variant) is Arithmetic.FLOAT32
    )
    notes = (threads.reason if threads else "", *_running_notes(verdict, answer), scales.changed)
    return Result(
        model={
            "name": model.name,
            "source": run.config.model.source,
            "sha256": model.digest,
            "nodes": len(searched.model.graph.nodes if searched else model.original.graph.node),
            "file_nodes": len(model.original.graph.node),
            "normalisation_error": searched.model.normalisation_error if searched else None,
            "noise": finite(max((noise.error for noise in model.noise.values()), default=0.0)),
        },
        target={
            "device": run.target.device,
            "accelerator": run.target.accelerator,
            "threads": run.target.threads,
            "allowed_threads": threads.allowed if threads else run.target.threads,
            "cores": list(run.target.cores),
            "held": held_level(),
        },
        environment=environment(run.target.machine.cpu, _versions(baselines, answer)),
        baselines=[*singles, *_greedy(seeds)],
        seeds=seeds,
        best=Latency.of("best", verdict.final.timing(verdict.answer)),
        answer=verdict.best_single if verdict.is_single else "placement",
        best_single=verdict.best_single,
        speedup_over_best_single=speedup_of(verdict.speedup, verdict, level, verdict.is_single),
        candidate_speedup=speedup_of(verdict.candidate_speedup, verdict, level, not raced.keys),
        numerics={
            "max_relative_error": finite(answer.relative_error),
            "max_abs_error": finite(answer.max_abs_error),
            "tolerance": finite(run.limits.tolerance),
            "inputs": run.config.verify.inputs,
        },
        placement=region_results(answer, model, placed, best_ms if run.machine.sessions == 1 else None),
        search=search_result(searched, skipped, scales.search) if searched else None,
        cost_model=cost_model_result(searched, scales.search) if searched and not skipped else None,
        wall_seconds=run.seconds,
        tuning=[tuning_result(one, searched.costs) for one in searched.tuned] if searched else [],
        accuracy=_accuracy(run, model, held_out, answer, front, broke),
        front=front,
        notes=(*model.notes, *filter(None, notes)),
        not_searched=found.reason if isinstance(found, NotSearched) else "",
        serving=_serving(baselines, verdict, answer),
        saved=saved_results(
            searched.tried, placed.placement, best_ms, {name: min(ms) for name, ms in float32_ms.items()}
        )
        if searched and placed
        else (),
        objective=run.config.search.objective,
        speeds=speeds,
        libraries=library_results(verdict, defaults, level, run.limits.budget, excluded),
        changed=scales.changed,
        scales={"baselines": scales.baselines, "search": scales.search},
        call_ms=answer.call_ms,
        by_size=_by_size(held_out, answer, left_out),
        rival=verdict.rival,
        proof=verdict.proof,
    )


def _baseline(baseline: Baseline, verdict: Verdict, scale: float, over: str) -> Latency:
    """Its time in the race, else its earlier one, and why it did not run or is ``over`` the budget."""
    if baseline.name in verdict.final.rounds:
        return Latency.of(baseline.name, verdict.final.timing(baseline.name))
    latency = latency_of(baseline.name, baseline.outcome, baseline.backend, baseline.variant).times(scale)
    return replace(latency, reason=over or latency.reason)


def _accuracy(
    run: RunContext,
    model: PreparedModel,
    held_out: HeldOut,
    answer: Answer,
    front: Sequence[FrontPoint],
    excluded: Sequence[str],
) -> Accuracy:
    """The answer's errors, if errors can be determined."""
    reported, limits = reports_errors(model), run.limits
    point = next((point for point in front if point.answer), None)
    judged, sampled, config = held_out.judged if reported else None, held_out.sampled, run.config
    error_search = finite(answer.relative_error) if point is None else point.error
    interval = None
    if judged is not None and judged.over == "all" and judged.low is not None and judged.high is not None:
        interval = (judged.low, judged.high)
    bounded = judged is not None and bool(judged.singles) and 0.0 < limits.budget < math.inf
    broken = [] if point is None or point.feasible else [BROKEN]
    return Accuracy(
        metric=config.accuracy.metric,
        budget=limits.asked,
        largest=finite(limits.budget) or None,
        error_search=error_search if reported else None,
        error_held_out=None if judged is None else finite(judged.error),
        interval=interval,
        samples={
            "calibration": sampled.calibration,
            "search": sampled.search or config.verify.inputs,
            "held_out": 0 if judged is None else judged.samples,
        },
        random=sampled.random,
        notes=(*limits.notes(), *_processor_notes(run), *broken, *excluded, *held_out.notes),
        over=run.setting.over,
        held_out=() if judged is None else tuple(map(_finite, judged.qualities(config.accuracy.metric))),
        unseen=not sampled.shared,
        invariance=held_out.invariance,
        over_budget=judged.beyond(limits.budget) if judged is not None and bounded else None,
    )


def _serving(baselines: Sequence[Baseline], verdict: Verdict, answer: Answer) -> list[ServingResult]:
    """Serving cost of each single backend that ran, and of the answer."""
    rows, serving = [], verdict.final.serving
    ran = [(one.name, one.artifact, one.name) for one in baselines if one.outcome.latency_ms is not None]
    for name, artifact, contestant in (*ran, ("best", answer.artifact, verdict.answer)):
        size = sum(path.stat().st_size for path in files_in(artifact).values())
        took = serving.get(contestant)
        peak_bytes, load_ms = (took.peak_bytes, took.load_ms) if took else (None, None)
        rows.append(ServingResult(name, size, peak_bytes, load_ms))
    return rows


def _by_size(held_out: HeldOut, answer: Answer, left_out: tuple[str, ...]) -> LatencyBySize | None:
    """Times by size of an answer for many sizes."""
    if (found := held_out.by_size) is None:
        return None
    artifact = read_artifact(answer.artifact)
    first = artifact.fallback.pieces[0].backend if artifact.fallback and needs_proof(artifact.program) else ""
    served = f"{found.served}; the first request of each shape also runs in {title(first)}" if first else found.served
    return replace(found, served=served, left_out=left_out)


def _running_notes(verdict: Verdict, answer: Answer) -> list[str]:
    """Notes on parts of the answer, and of its rivals in the race, that run worse than they could."""
    rivals = {name: took.notes for name, took in verdict.final.serving.items() if name != verdict.answer}
    everybody = {"the answer": answer.notes} | rivals
    return [f"{name}: {note}" for name, notes in everybody.items() for note in notes]


def _versions(baselines: Sequence[Baseline], answer: Answer) -> dict[str, str]:
    """Versions of the backends that take part."""
    ran = [baseline.artifact for baseline in baselines if baseline.artifact.exists()]
    pieces = [piece for path in (answer.artifact, *ran) for piece in read_artifact(path).program.pieces]
    return {piece.backend: piece.backend_version for piece in pieces}


def excluded_notes(
    front: Sequence[FrontPoint], keys: Mapping[str, str], reasons: Mapping[str, str]
) -> tuple[str, ...]:
    """Sentences about contestants that are not the answer; ``reasons``: by name, as ``keys`` of placements."""
    whats = {point.key or point.single: point.what for point in front}
    named = ((whats.get(keys.get(name, name), "A candidate"), reason) for name, reason in reasons.items())
    return tuple(f"{what} is not the answer: {reason}" for what, reason in named)


def _finite(quality: Quality) -> Quality:
    """``quality`` for JSON: None for infinite numbers."""
    return Quality(quality.name, *(finite(value) for value in astuple(quality)[1:]))


def _processor_notes(run: RunContext) -> tuple[str, ...]:
    """Notes on precisions that the budget allows and the processor does not compute in."""
    target = run.setting.target
    if target.accelerated or not run.limits.front or target.machine.computes_in(Arithmetic.BFLOAT16):
        return ()
    return ("This processor does not compute in bfloat16, so only float32 and int8 took part",)


def _greedy(seeds: Sequence[SeedResult]) -> list[Latency]:
    """The fastest greedy partition, as measured in the search."""
    measured = [s.latency for s in seeds if s.kind.way is Way.GREEDY and s.latency.median_ms is not None]
    return [min(measured, key=lambda latency: latency.median_ms or 0.0)] if measured else []
