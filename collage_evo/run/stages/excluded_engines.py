"""Engines that are excluded from a search by the measurements of single backends."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence

from collage_evo.answer.baselines import Baseline, best_single, latencies
from collage_evo.backends.base import Backend
from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import TargetLike, Variant, engine_name, serves
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Failure, Fault
from collage_evo.policy import Policy
from collage_evo.pruning import (
    BATCH_DEPENDENT,
    COARSE_PRECISION,
    SLOW_ENGINE,
    SLOW_PRECISION,
    SPENT_PRECISION,
    UNTIMED_ENGINE,
)
from collage_evo.report.words import format_engine, format_name, format_ratio

Log = Callable[[str], None]


def excluded_engines(
    baselines: Sequence[Baseline],
    backends: Sequence[Backend],
    policy: Policy,
    budget: float,
    log: Log,
    target: TargetLike | None = None,
) -> dict[Engine, Failure]:
    """Engines of ``target`` that are not tried on parts of the model, each with the reason; logs the slow ones."""
    slow = _slow_precisions(baselines, policy.precision_slower, log)
    slow |= _untried(baselines, backends) | _needless(baselines)
    dependents = _slow_dependents(baselines, backends, slow, budget, log)
    excluded = slow | dependents | _other_ways(baselines, backends, slow, policy, budget, log)
    engines = {(one.name, variant.name) for one in backends for variant in one.variants if serves(variant, target)}
    return {engine: why for engine, why in excluded.items() if engine in engines}


def batch_dependent(backends: Sequence[Backend]) -> dict[Engine, Failure]:
    """Engines in which the result of a row depends on the other rows of its batch."""
    why = "computes one scale from all rows of a batch, and the answer is to be batch invariant"
    failure = Failure(Fault.NEEDLESS, why, rule=BATCH_DEPENDENT.name)
    forms = {(one.name, variant.name): variant.int8_form for one in backends for variant in one.variants}
    return {engine: failure for engine, form in forms.items() if form is not None and not form.batch_invariant}


def _slow_precisions(baselines: Sequence[Baseline], slower: float, log: Log) -> dict[Engine, Failure]:
    """Engines of a lower precision in which their single backend is slower than in float32 there."""
    times, slow = latencies(baselines), {}
    for (backend, name), ms in times.items():
        variant = get_backend(backend).variant(name)
        default = times.get((backend, _usual(get_backend(backend), variant)))
        if not variant.exact and default is not None and ms > slower * default:
            longer = f"takes {format_ratio(ms / default)} times as long as in float32 here"
            why = f"{longer}: it is not tried on parts of the model"
            slow[backend, name] = Failure(Fault.FAR_BEHIND, why, rule=SLOW_PRECISION.name)
            log(f"{format_engine(backend, name)} {why}")
    return slow


def _untried(baselines: Sequence[Baseline], backends: Sequence[Backend]) -> dict[Engine, Failure]:
    """Engines whose baseline was not measured for lack of time, and those that run pieces in the same way; all
    engines of a backend whose baselines were all skipped so."""
    late = {(b.backend, b.variant) for b in baselines if b.out_of_time}
    names = {backend for backend, _ in late} - {b.backend for b in baselines if not b.out_of_time}
    why = "was not timed: the time for baselines was over (--effort thorough has more)"
    failure = Failure(Fault.NO_TIME, why, rule=UNTIMED_ENGINE.name)
    return {
        (backend.name, variant.name): failure
        for backend in backends
        for variant in backend.variants
        if backend.name in names or {(backend.name, variant.name), (backend.name, variant.base)} & late
    }


def _needless(baselines: Sequence[Baseline]) -> dict[Engine, Failure]:
    """Engines in a lower precision whose baseline could not be the fastest."""
    failures = (((b.backend, b.variant), b.outcome.failure) for b in baselines if not b.exact)
    return {engine: one for engine, one in failures if one is not None and one.fault is Fault.NEEDLESS}


def _other_ways(
    baselines: Sequence[Baseline],
    backends: Sequence[Backend],
    slow: Collection[Engine],
    policy: Policy,
    budget: float,
    log: Log,
) -> dict[Engine, Failure]:
    """Of two ways into one precision, a setting for whole pieces and Casts, the one with less to gain.

    The setting is no slower and combines better with int8. Only Casts can leave some operators of a piece in float32,
    which pays if the precision itself uses up much of the budget; if it uses up nearly all, nothing is left for int8.
    """
    errors = {(b.backend, b.variant): b.outcome.error for b in baselines}
    excluded = {}
    for backend in backends:
        for variant, setting in _in_two_ways(backend):
            engine = (backend.name, setting)
            error = errors.get(engine)
            if engine in slow or error is None or error <= policy.precision_coarse * budget:
                why = "whole pieces in this precision have more to win"
                excluded[backend.name, variant.name] = Failure(Fault.NEEDLESS, why, rule=COARSE_PRECISION.name)
                continue
            text = f"{format_engine(*engine)} as baseline has error {error:.2g}, budget {budget:.2g}"
            if error > policy.precision_spent * budget:
                why = f"{text}: it is tried operator by operator"
                excluded[engine] = Failure(Fault.NEEDLESS, why, rule=SPENT_PRECISION.name)
            kind = variant.arithmetic.value
            log(f"{text}: operators in {kind} and in float32 are tried in one piece")
    return excluded


def known_ms(baselines: Sequence[Baseline]) -> dict[Engine, float]:
    """Latency of the whole model by engine: engines that ran it, and those that write the same arithmetic into it."""
    times = latencies(baselines)
    for name in {backend for backend, _ in times}:
        for variant, setting in _in_two_ways(get_backend(name)):
            if (ms := times.get((name, setting))) is not None:
                times[name, variant.name] = ms
    return times


def _in_two_ways(backend: Backend) -> Iterator[tuple[Variant, str]]:
    """Variants that write an arithmetic into pieces, each with the one that sets it for a whole piece."""
    for variant in (one for one in backend.variants if one.writes):
        alike = (v for v in backend.variants if v.arithmetic is variant.arithmetic and v.on_host == variant.on_host)
        if setting := next((v.name for v in alike if not v.writes), ""):
            yield variant, setting


def _slow_dependents(
    baselines: Sequence[Baseline], backends: Sequence[Backend], slow: Collection[Engine], budget: float, log: Log
) -> dict[Engine, Failure]:
    """Engines that stand on one that is ``slow``, far behind, or does not run the whole model."""
    times = latencies(baselines)
    best_ms = best_single(baselines, budget).outcome.latency_ms or math.inf
    far_ms = SLOW_ENGINE.number * best_ms
    excluded = {}
    for backend in backends:
        if not isinstance(backend, StandsOnOthers):
            continue
        text: dict[str, None] = {}
        for variant in backend.variants:
            below = backend.stands_on(variant)
            if below in slow or times.get(below, math.inf) > far_ms:
                text[engine_name(*below)] = None
                why = f"stands on {format_engine(*below)}, whose baseline is far behind or fails"
                excluded[backend.name, variant.name] = Failure(Fault.FAR_BEHIND, why, rule=SLOW_ENGINE.name)
        if text:
            names = " and ".join(map(format_name, text))
            behind = "the baseline is far behind or fails"
            log(f"{backend.name} does not use {names}: {behind}")
    return excluded


def _usual(backend: Backend, like: Variant) -> str:
    """The first variant of ``backend`` that computes in float32 where ``like`` runs; empty where there is none."""
    exact = (v for v in backend.variants if v.on_host == like.on_host and v.exact)
    return next((variant.name for variant in exact), "")
