"""Result of a run, assembled from the values of its stages."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property

from collage_evo.accuracy.judge import Quality
from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.sequential import Ratio
from collage_evo.graph.prepare import PreparedModel
from collage_evo.hardware.processor import level as held_level
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.report.result import (
    Accuracy,
    FrontPoint,
    Latency,
    LibraryResult,
    Result,
    SeedResult,
    ServingResult,
    Speeds,
    Speedup,
    environment,
    finite,
)
from collage_evo.report.words import describe_failure
from collage_evo.run.budget import SEARCH_SKIPPED
from collage_evo.run.context import RunContext
from collage_evo.run.front import Phases, Raced, front_points, over_budget
from collage_evo.run.objectives import further_bounds
from collage_evo.run.result_parts import (
    cost_model_result,
    latency_of,
    region_results,
    search_result,
    seed_results,
    tuning_result,
)
from collage_evo.run.search import NotSearched, Searched
from collage_evo.run.stages.answer import Answer
from collage_evo.run.stages.held_out import HeldOut
from collage_evo.run.stages.model import reports_errors
from collage_evo.run.stages.threads import THREADS, OnThreads
from collage_evo.runtime.artifact import read_artifact
from collage_evo.search.evolution.origin import Way

BROKEN = "The answer exceeds the budget, which nothing that was measured meets: float32 is closest"
"""Note on such an answer."""


@dataclass(frozen=True)
class Ended:
    """All values of a finished run.

    Those of ``baselines``, and of ``searched``, that exceed the limits of ``run`` did not race; of those that did,
    some exceeded them on the ``held_out`` samples. ``speeds``: of the answer, in a single session and on the full
    machine. ``defaults``: of the libraries that it replaces.
    """

    run: RunContext
    model: PreparedModel
    searched: Searched | NotSearched
    baselines: Sequence[Baseline]
    defaults: Sequence[Baseline]
    verdict: Verdict
    held_out: HeldOut
    answer: Answer
    speeds: Speeds | None

    def result(self) -> Result:
        """The content of ``result.json``."""
        partial = self._of_any_run()
        return self._with_search(partial, self.searched) if isinstance(self.searched, Searched) else partial

    def _of_any_run(self) -> Result:
        run, model, verdict, answer = self.run, self.model, self.verdict, self.answer
        level = run.config.policy.race_level
        key = self._raced.keys.get(verdict.answer)
        return Result(
            model={
                "name": model.name,
                "source": run.config.model.source,
                "sha256": model.digest,
                "nodes": len(model.original.graph.node),
                "file_nodes": len(model.original.graph.node),
                "normalisation_error": None,
                "noise": finite(max((noise.error for noise in model.noise.values()), default=0.0)),
            },
            target={
                "device": run.target.device,
                "accelerator": run.target.accelerator,
                "threads": run.target.threads,
                "allowed_threads": self._threads.allowed if self._threads else run.target.threads,
                "cores": list(run.target.cores),
                "held": held_level(),
            },
            environment=environment(run.target.machine.cpu, self._versions()),
            baselines=[self._baseline(baseline) for baseline in self.baselines],
            seeds=[],
            best=Latency.of("best", verdict.final.timing(verdict.answer)),
            answer=verdict.best_single if verdict.is_single else "placement",
            best_single=verdict.best_single,
            speedup_over_best_single=_speedup(verdict.speedup, verdict, verdict.is_single, level),
            candidate_speedup=_speedup(verdict.candidate_speedup, verdict, not self._raced.keys, level),
            numerics={
                "max_relative_error": finite(answer.relative_error),
                "max_abs_error": finite(answer.max_abs_error),
                "tolerance": finite(run.limits.tolerance),
                "inputs": run.config.verify.inputs,
            },
            placement=region_results(answer, model, self.searched.at(key)),
            search=None,
            cost_model=None,
            wall_seconds=run.seconds,
            tuning=[],
            accuracy=self._accuracy(),
            front=self._front,
            notes=(*model.notes, *self._threads_notes(), *self._running_notes(), *self._changed_notes()),
            not_searched=self.searched.reason if isinstance(self.searched, NotSearched) else "",
            serving=self._serving(),
            objective=run.config.search.objective,
            speeds=self.speeds,
            libraries=compare_defaults(run, verdict, self.defaults, self.held_out.excluded),
            changed=self._phases.changed,
            scales={"baselines": self._phases.of_baselines, "search": self._phases.of_search},
            call_ms=answer.call_ms,
            rival=verdict.rival,
        )

    def _with_search(self, partial: Result, searched: Searched) -> Result:
        """``partial``, the result of any run, with that of its search."""
        fates, scale = {**self._raced.fates, **self._over}, self._phases.of_search
        skipped = self.run.store.get(SEARCH_SKIPPED, bool) or False
        seeds = seed_results(searched, partial.best, fates, self.verdict.final, scale)
        graph, error = searched.model.graph, searched.model.normalisation_error
        return replace(
            partial,
            model={**partial.model, "nodes": len(graph.nodes), "normalisation_error": error},
            baselines=[*partial.baselines, *_greedy(seeds)],
            seeds=seeds,
            search=search_result(searched, skipped, scale),
            cost_model=None if skipped else cost_model_result(searched, self.verdict),
            tuning=[tuning_result(one, searched.costs) for one in searched.tuned],
        )

    @cached_property
    def _raced(self) -> Raced:
        return raced(self.searched.keys, self.verdict, self.held_out.excluded)

    @cached_property
    def _front(self) -> tuple[FrontPoint, ...]:
        tried, phases = self.searched.tried, self._phases
        scales = (phases.of_baselines, phases.of_search)
        raced, further = self._raced, further_bounds(self.run)
        points = front_points(tried, self.baselines, raced, self.run.limits, *scales, further)
        bounds = {raced.keys.get(name, name): finite(error) for name, error in self.held_out.bounds.items()}
        return tuple(replace(point, held_out=bounds.get(point.key or point.single)) for point in points)

    @cached_property
    def _phases(self) -> Phases:
        return Phases.of(self.searched.tried, self.baselines, self._raced)

    @cached_property
    def _over(self) -> dict[str, str]:
        """Reasons why a point may not be the answer, by key, or by name of a single backend."""
        return {point.key or point.single: partial for point in self._front if (partial := over_budget(point))}

    def _baseline(self, baseline: Baseline) -> Latency:
        if baseline.name in self.verdict.final.rounds:
            return Latency.of(baseline.name, self.verdict.final.timing(baseline.name))
        measured = latency_of(baseline.name, baseline.outcome, baseline.backend, baseline.variant)
        latency = measured.times(self._phases.of_baselines)
        over = self._over.get(baseline.name)
        return replace(latency, reason=over) if over else latency

    def _accuracy(self) -> Accuracy:
        """The answer's errors, if errors can be determined."""
        reported, held_out, limits = reports_errors(self.model), self.held_out, self.run.limits
        point = next((point for point in self._front if point.answer), None)
        judged, sampled, config = held_out.judged if reported else None, held_out.sampled, self.run.config
        error_search = finite(self.answer.relative_error) if point is None else point.error
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
            notes=(*limits.notes(), *_processor_notes(self.run), *broken, *self._excluded_notes(), *held_out.notes),
            over=self.run.setting.over,
            held_out=() if judged is None else tuple(map(_finite, judged.qualities(config.accuracy.metric))),
            unseen=not sampled.shared,
            over_budget=judged.beyond(limits.budget) if judged is not None and bounded else None,
        )

    def _excluded_notes(self) -> list[str]:
        return excluded_notes(self._front, self._raced.keys, self.held_out.excluded)

    def _serving(self) -> list[ServingResult]:
        """Serving cost of each single backend and the answer."""
        ran = [baseline for baseline in self.baselines if baseline.outcome.latency_ms is not None]
        rows = []
        for name, artifact, candidate in (
            *((baseline.name, baseline.artifact, baseline.name) for baseline in ran),
            ("best", self.answer.artifact, self.verdict.answer),
        ):
            took = self.verdict.final.serving.get(candidate)
            size = sum(path.stat().st_size for path in artifact.rglob("*") if path.is_file())
            peak_bytes, load_ms = (None, None) if took is None else (took.peak_bytes, took.load_ms)
            rows.append(ServingResult(name, size, peak_bytes, load_ms))
        return rows

    def _running_notes(self) -> list[str]:
        """Notes on parts of the answer, and of its rivals in the race, that run worse than they could."""
        answer, serving = self.verdict.answer, self.verdict.final.serving
        rivals = {name: took.notes for name, took in serving.items() if name != answer}
        everybody = {"the answer": self.answer.notes} | rivals
        return [f"{name}: {note}" for name, notes in everybody.items() for note in notes]

    @cached_property
    def _threads(self) -> OnThreads | None:
        return self.run.store.get(THREADS, OnThreads)

    def _threads_notes(self) -> list[str]:
        return [self._threads.reason] if self._threads and self._threads.reason else []

    def _changed_notes(self) -> list[str]:
        return [self._phases.changed] if self._phases.changed else []

    def _versions(self) -> dict[str, str]:
        """Versions of the backends that take part."""
        ran = [baseline.artifact for baseline in self.baselines if baseline.artifact.exists()]
        pieces = [piece for path in (self.answer.artifact, *ran) for piece in read_artifact(path).program.pieces]
        return {piece.backend: piece.backend_version for piece in pieces}


def raced(keys: Mapping[str, str], verdict: Verdict, excluded: Mapping[str, str]) -> Raced:
    """Fate of each placement that raced; empty where no placement was compiled.

    ``keys``: of those placements by their names in the race. ``excluded``: by name, how those that were faster
    exceeded the budget on held-out samples.
    """
    fates = dict.fromkeys(keys.values(), "it was not faster for certain in the thorough comparison")
    failed = verdict.final.failed
    fates |= {
        key: f"it failed when it was checked: {describe_failure(failed[n])}" for n, key in keys.items() if n in failed
    }
    if verdict.candidate in keys:
        fates[keys[verdict.candidate]] = (
            "compared thoroughly, not faster than all libraries for certain" if verdict.is_single else "the answer"
        )
    return Raced(verdict, keys, fates | {keys.get(name, name): partial for name, partial in excluded.items()})


def excluded_notes(
    front: Sequence[FrontPoint], keys: Mapping[str, str], excluded: Mapping[str, str]
) -> list[str]:
    """Notes on what was faster than the answer and is ``excluded``, with reasons by name in the race."""
    whats = {point.key or point.single: point.what for point in front}
    named = [(whats.get(keys.get(name, name), "A candidate"), reason) for name, reason in excluded.items()]
    return [f"{what} was faster, but {reason}" for what, reason in named]


def compare_defaults(
    run: RunContext, verdict: Verdict, defaults: Sequence[Baseline], excluded: Collection[str] = ()
) -> tuple[LibraryResult, ...]:
    """Speed-up of the answer over each library of ``defaults``, from the race that it won.

    ``excluded``: names of those that exceeded the budget after it.
    """
    final, level = verdict.final, run.config.policy.race_level
    speedups = {verdict.best_single: verdict.speedup, verdict.answer: ITSELF}

    def row(library: Baseline, ratio: Ratio) -> LibraryResult:
        keeps = library.keeps(run.limits.budget) and library.name not in excluded
        speedup = Speedup(ratio.estimate, ratio.low, ratio.high, ratio.rounds, ratio is ITSELF, final.seconds, level)
        ms, error = final.timing(library.name).median_ms, finite(library.outcome.error)
        return LibraryResult(library.name, library.backend, library.variant, ms, error, speedup, keeps)

    raced = (library for library in defaults if library.name in final.rounds)
    return tuple(
        row(library, speedups.get(library.name) or final.ratio(library.name, verdict.answer, 1.0 - level))
        for library in raced
    )


def _speedup(ratio: Ratio, verdict: Verdict, by_definition: bool, level: float) -> Speedup:
    seconds = verdict.final.seconds
    return Speedup(ratio.estimate, ratio.low, ratio.high, ratio.rounds, by_definition, seconds, level)


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
