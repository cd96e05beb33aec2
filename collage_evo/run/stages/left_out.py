"""Which engines take no part in a search, by what backends alone took."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from collage_evo.backends.base import Backend
from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import Variant, engine_name
from collage_evo.fitness.costs.model import Engine
from collage_evo.fitness.final.baselines import Baseline, best_single, latencies
from collage_evo.report.words import told_engine, told_name, told_ratio
from collage_evo.run.context import RunContext

SLOWER = 1.5
"""A precision in which a backend alone takes so many times as long as in float32 is not tried on parts. These two
times were taken one after the other, and may each be a third off; where it is slower by less, its kernels tell."""
COARSE = 0.5
"""A precision whose error, alone, is so large a share of the budget is tried beside float32, operator by operator.
Squared errors add up: below, float32 in its place would leave others a third more at most."""
BEHIND = 1.5
"""Where the best backend alone is so many times as fast as another one, nothing stands on that one. It would have
to win as much only to draw level. Chosen: what lanes can win at most was measured on few models (docs/results.md)."""


def left_out(run: RunContext, baselines: Sequence[Baseline], backends: Sequence[Backend]) -> frozenset[Engine]:
    """Engines that are not tried on parts of the model; says which they are."""
    slow = _slow_precisions(run, baselines) | _untried(baselines, backends)
    return slow | _slow_dependents(run, baselines, backends, slow) | _other_ways(run, baselines, backends, slow)


def _slow_precisions(run: RunContext, baselines: Sequence[Baseline]) -> frozenset[Engine]:
    """Those of a lower precision in which their backend alone is slower than in float32 on the same device."""
    times = latencies(baselines)
    found = set()
    for (backend, name), ms in times.items():
        variant = get_backend(backend).variant(name)
        default = times.get((backend, _usual(get_backend(backend), variant.device)))
        if not variant.exact and default is not None and ms > SLOWER * default:
            found.add((backend, name))
            run.reporter.say(
                f"{told_engine(backend, name)} takes {told_ratio(ms / default)} times as long as in float32 here: "
                "it is not tried on parts of the model"
            )
    return frozenset(found)


def _untried(baselines: Sequence[Baseline], backends: Sequence[Backend]) -> frozenset[Engine]:
    """Those that were not tried alone for want of time, those that run pieces as they do, all of such a backend."""
    late = {(b.backend, b.variant) for b in baselines if b.out_of_time}
    names = {backend for backend, _ in late} - {b.backend for b in baselines if not b.out_of_time}
    return frozenset(
        (backend.name, variant.name)
        for backend in backends
        for variant in backend.variants
        if backend.name in names or {(backend.name, variant.name), (backend.name, variant.base)} & late
    )


def _other_ways(
    run: RunContext, baselines: Sequence[Baseline], backends: Sequence[Backend], slow: Collection[Engine]
) -> frozenset[Engine]:
    """Of two ways into one precision, by a setting for whole pieces and by Casts, the one that has less to win.

    The setting is no slower and takes int8 along better. Only Casts leave some operators in float32 beside others in
    the same piece, which pays where the precision alone uses up much of the budget.
    """
    errors = {(b.backend, b.variant): b.outcome.error for b in baselines}
    found = set()
    for backend in backends:
        for variant in (one for one in backend.variants if one.casts is not None):
            engine = (backend.name, _set_for_all(backend, variant))
            error = errors.get(engine)
            if engine in slow or error is None or error <= COARSE * run.limits.budget:
                found.add((backend.name, variant.name))
                continue
            found.add(engine)
            told = f"{engine_name(*engine)} alone has an error of {error:.2g}, allowed are {run.limits.budget:.2g}"
            run.reporter.say(f"{told}: operators in {variant.arithmetic.value} and in float32 are tried in one piece")
    return frozenset(found)


def known_ms(baselines: Sequence[Baseline]) -> dict[Engine, float]:
    """What all of the model takes on engines: those that ran it, and those that write the same arithmetic into it."""
    times = latencies(baselines)
    for name in {backend for backend, _ in times}:
        backend = get_backend(name)
        for variant in (one for one in backend.variants if one.casts is not None):
            if (ms := times.get((name, _set_for_all(backend, variant)))) is not None:
                times[name, variant.name] = ms
    return times


def _set_for_all(backend: Backend, variant: Variant) -> str:
    """The variant of ``backend`` that sets for a whole piece the arithmetic that ``variant`` writes into it."""
    alike = (v for v in backend.variants if v.arithmetic is variant.casts and v.device == variant.device)
    return next((v.name for v in alike if not v.writes), "")


def _slow_dependents(
    run: RunContext, baselines: Sequence[Baseline], backends: Sequence[Backend], slow: Collection[Engine]
) -> frozenset[Engine]:
    """Those that stand on an engine that is ``slow``, far behind, or does not run the model alone."""
    times = latencies(baselines)
    best_ms = best_single(baselines, run.limits.budget).outcome.latency_ms or math.inf
    found = set()
    for backend in backends:
        if not isinstance(backend, StandsOnOthers):
            continue
        told: dict[str, None] = {}
        for variant in backend.variants:
            below = backend.stands_on(variant)
            if below in slow or times.get(below, math.inf) > BEHIND * best_ms:
                found.add((backend.name, variant.name))
                told[engine_name(*below)] = None
        if told:
            names = " and ".join(map(told_name, told))
            run.reporter.say(f"nothing runs side by side in {names}: alone on the model, that is far behind or fails")
    return frozenset(found)


def _usual(backend: Backend, device: str) -> str:
    """The first variant of ``backend`` that computes in float32 on ``device``; empty where there is none."""
    exact = (v for v in backend.variants if v.device == device and v.exact)
    return next((variant.name for variant in exact), "")
