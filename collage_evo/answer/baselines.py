"""Baselines: each single backend on the user's model, with an artifact and a latency, or the reason for none."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from collage_evo.accuracy.limits import Limits
from collage_evo.backends.base import Backend
from collage_evo.backends.capabilities import StandsOnOthers, refuses_shapes
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import usable_backends, whole_variants
from collage_evo.backends.variants import DEFAULT, TargetLike, Variant, engine_name
from collage_evo.errors import InputError, UnavailableError
from collage_evo.files import read_json, write_json
from collage_evo.fitness.evaluate import outcome_of
from collage_evo.fitness.jobs import FallbackJob, Setting, WholeJob
from collage_evo.fitness.machine import Machine, Process
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Bounds, Outcome
from collage_evo.hardware.processor import Processor, this_machine
from collage_evo.hardware.target import Target
from collage_evo.multimap import multimap
from collage_evo.pruning import EXACT_LIBRARY, LONG_COMPILATION, SLOW_BASELINE, SLOW_VARIANTS, UNREACHABLE_PRECISION
from collage_evo.runtime.timing import TimingSettings

USUAL = "onnxruntime"
"""Baseline that a user with an ONNX file is assumed to have now: ONNX Runtime with its defaults."""
FEW_RUNS = TimingSettings(warmup=1, min_runs=3, min_seconds=0.0, max_seconds=3.0)
"""Timing settings of a baseline that races afterwards."""
_OVER = Failure(
    Fault.NO_TIME, "the time for baselines was over (--effort thorough has more)", rule=LONG_COMPILATION.name
)
_OUTDONE = replace(_OVER, rule=EXACT_LIBRARY.name)


@dataclass(frozen=True)
class Baseline:
    """One backend, in one variant, that runs the whole model."""

    name: str
    backend: str
    variant: str
    artifact: Path
    outcome: Outcome
    target: str = ""
    """Digest of the target of the measurement."""
    exact: bool = True
    """Whether it computes in float32 throughout."""

    def keeps(self, budget: float) -> bool:
        """Whether it runs and may be the answer for an error budget of ``budget``; in float32 it always may."""
        error = self.outcome.error
        return self.outcome.latency_ms is not None and (self.exact or (error is not None and error <= budget))

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit for baselines prevented its measurement."""
        return self.outcome.failure is not None and self.outcome.failure.fault is Fault.NO_TIME


def out_of_time(baselines: Sequence[Baseline], budget: float) -> bool:
    """Whether time was over before one that may be the answer for ``budget`` was measured."""
    return any(b.out_of_time for b in baselines) and not any(b.keeps(budget) for b in baselines)


def latencies(baselines: Sequence[Baseline]) -> dict[tuple[str, str], float]:
    """Latencies in ms of the successful ones, by backend and variant."""
    return {(b.backend, b.variant): b.outcome.latency_ms for b in baselines if b.outcome.latency_ms is not None}


def measure_baselines(
    backends: Sequence[Backend],
    directory: Path,
    machine: Machine,
    timing: TimingSettings,
    on_done: Callable[[Sequence[Baseline]], None],
    seconds: float = math.inf,
    far: Mapping[tuple[str, str], Failure] = MappingProxyType({}),
    most_s: float = math.inf,
) -> tuple[Baseline, ...]:
    """Measure every backend in each variant that the setting allows, each in a process of its own.

    Those that run most models well come first, on the accelerator before the host: the first in float32, the
    others in their default precision, then all in further ones, float32 before lower ones. The others may compile for
    minutes: they follow in the order of what the first took in the same arithmetic. After each, ``on_done`` is called
    with the results so far. One that is far behind the best before it, by the policy, has the latency of the few runs
    it made (one, where a run takes long; none, where it was ended during the first), and a reason: the best in
    float32 counts, or for one in a lower precision that of any precision within the budget. A lower precision that
    cannot be the fastest of its library is not tried. After ``seconds`` only those that run most models well are
    tried (of float32, if a lower precision is likely to be faster, a part of them: ``EXACT_LIBRARY``), and another
    that is unfinished by then is ended, unless nothing that may be the answer ran yet; after ``most_s`` none is, and
    any is ended. A last resort is measured if none before it is correct in float32. Those known to be ``far`` behind
    are not tried, for that reason.
    """
    setting, budget = machine.setting, machine.setting.limits.budget
    measured: list[Baseline] = []
    on, began, safe_error = setting.target.digest, time.monotonic(), setting.policy.precision_spent * budget
    with machine.exclusive(machine.sessions) as fresh_process:
        for backend, variant in _in_turn(backends, setting, measured):
            if variant.last_resort and any(b.exact and b.outcome.ok for b in measured):
                continue
            name = engine_name(backend.name, variant.name)
            artifact = directory / f"{name.replace('/', '-')}.collage"
            rivals = [b for b in measured if b.exact or (not variant.exact and b.keeps(budget))]
            best_ms = min((b.outcome.latency_ms or math.inf for b in rivals), default=math.inf)
            why = _hopeless(measured, backend, variant, SLOW_VARIANTS.number * best_ms)
            why = why or why_needless(measured, backend, variant, safe_error, this_machine())
            outdone = _outdone(backend, variant, backends, setting)
            long = outdone or not backend.runs_any_model(variant)
            until_s = min(most_s, (EXACT_LIBRARY.number if outdone else 1.0) * seconds if long else math.inf)
            left_s = began + until_s - time.monotonic() if any(b.keeps(budget) for b in measured) else math.inf
            if left_s <= (LONG_COMPILATION.number * best_ms / 1e3 if long and math.isfinite(best_ms) else 0.0):
                why = _OUTDONE if outdone else _OVER
            why = far.get((backend.name, variant.name), why)  # of this variant only, not the backend's other ones
            if why is not None:
                outcome = Outcome.unfit(why)
            else:
                outcome = _in_own_process(backend, variant, artifact, machine, fresh_process, timing, best_ms, left_s)
                cut_off = left_s < machine.timeout_s or time.monotonic() > began + most_s
                if cut_off and outcome.failure is not None and outcome.failure.fault is Fault.HANG:
                    outcome = Outcome.unfit(_OUTDONE if outdone else _OVER)
            if outcome.latency_ms is None:  # as large as the model, and never the answer
                shutil.rmtree(artifact, ignore_errors=True)
            measured.append(Baseline(name, backend.name, variant.name, artifact, outcome, on, variant.exact))
            on_done(measured)
    return tuple(measured)


def measure_as_it_comes(
    backends: Sequence[Backend], directory: Path, machine: Machine, timing: TimingSettings
) -> tuple[Baseline, ...]:
    """Measure each library on the user's model with its own settings except for the number of threads.

    Those that run most models well come first; one that is far behind the best before it, by the policy, has the
    latency of few runs, or none.
    """
    measured: list[Baseline] = []
    libraries, on = [one for one in backends if not isinstance(one, StandsOnOthers)], machine.setting.target.digest
    with machine.exclusive(machine.sessions) as fresh_process:
        for backend in sorted(libraries, key=lambda library: not library.runs_any_model(library.as_it_comes)):
            variant, artifact = backend.as_it_comes, directory / f"{backend.name}.collage"
            best_ms = min((b.outcome.latency_ms or math.inf for b in measured), default=math.inf)
            outcome = _in_own_process(backend, variant, artifact, machine, fresh_process, timing, best_ms)
            measured.append(Baseline(backend.name, backend.name, variant.name, artifact, outcome, on, variant.exact))
    return tuple(measured)


def measure_one(backend: Backend, variant: Variant, artifact: Path, machine: Machine) -> Outcome:
    """Measure one backend in one variant with a few runs, and write ``artifact``."""
    with machine.exclusive(machine.sessions) as fresh_process:
        return _in_own_process(backend, variant, artifact, machine, fresh_process, FEW_RUNS, math.inf)


def _in_own_process(
    backend: Backend,
    variant: Variant,
    artifact: Path,
    machine: Machine,
    fresh_process: Callable[[], Process],
    timing: TimingSettings,
    best_ms: float,
    seconds: float = math.inf,
) -> Outcome:
    """Measure one backend in a process of its own, where the best before it takes ``best_ms``; also returns why it
    was given up, if it was. The process is ended after ``seconds`` without an answer."""
    give_up_ms = machine.setting.policy.single_give_up * best_ms
    with fresh_process() as process:
        job = WholeJob(backend.name, variant.name, str(artifact), timing, give_up_ms)
        outcome = outcome_of(process.call(job, min(seconds, machine.timeout_s)))
    if outcome.latency_ms is None or outcome.latency_ms <= give_up_ms or outcome.n >= timing.min_runs:
        return outcome
    runs, behind = "run" if outcome.n == 1 else "runs", outcome.latency_ms / best_ms
    why = f"given up after {outcome.n} {runs}, {behind:.1f} times as slow as the best"
    return replace(outcome, failure=Failure(Fault.FAR_BEHIND, why, rule=SLOW_BASELINE.name))


def _in_turn(
    backends: Sequence[Backend], setting: Setting, measured: Sequence[Baseline]
) -> Iterator[tuple[Backend, Variant]]:
    """Backends and variants in the order of their measurement; each result is in ``measured`` before the next one."""
    target, largest = setting.target, setting.limits.measured
    pairs = [(backend, variant) for backend in backends for variant in whole_variants(backend, target, largest)]
    run_most = [pair for pair in pairs if _runs_most(*pair)]
    first = next((pair for pair in run_most if pair[1].exact), None)

    def by_defaults(pair: tuple[Backend, Variant]) -> tuple[bool, ...]:
        backend, variant = pair
        default = variant == backend.like_defaults(target)
        return variant.last_resort, variant.on_host, pair != first, not default, not variant.exact

    yield from sorted(run_most, key=by_defaults)
    arithmetics = {(backend.name, variant.name): variant.arithmetic for backend, variant in pairs}
    known = latencies([one for one in measured if one.keeps(setting.limits.budget)])
    fastest = multimap((arithmetics[engine], ms) for engine, ms in known.items())

    def by_arithmetic(pair: tuple[Backend, Variant]) -> tuple[float, ...]:
        _, variant = pair
        like_ms = min(fastest.get(variant.arithmetic, ()), default=math.inf)
        return variant.last_resort, variant.on_host, like_ms, not variant.exact

    yield from sorted((pair for pair in pairs if not _runs_most(*pair)), key=by_arithmetic)


def _runs_most(backend: Backend, variant: Variant) -> bool:
    return backend.runs_any_model(variant) and not variant.last_resort


def _outdone(backend: Backend, variant: Variant, backends: Sequence[Backend], setting: Setting) -> bool:
    """Whether a lower precision of ``backends`` is likely to be faster than ``variant``, in float32: the budget
    admits one, and it is a further variant, or its library has no other precision there."""
    lower = {one.name for one in backends for v in one.variants if v.on_host == variant.on_host and not v.exact}
    further = variant.name != DEFAULT.name or backend.name not in lower
    return variant.exact and further and bool(lower) and setting.limits.front > 0.0


def _hopeless(measured: Sequence[Baseline], backend: Backend, variant: Variant, hopeless_ms: float) -> Failure | None:
    """Why ``variant`` is not tried: another one that runs where it does takes longer than ``hopeless_ms``."""
    alike = {(backend.name, other.name) for other in backend.variants if other.on_host == variant.on_host}
    for other in (one for one in measured if (one.backend, one.variant) in alike):
        failure, ms = other.outcome.failure, other.outcome.latency_ms
        if failure is not None and failure.fault is Fault.FAR_BEHIND and (ms is None or ms > hopeless_ms):
            return Failure(Fault.FAR_BEHIND, f"{other.name} is too, so this was not tried", rule=SLOW_VARIANTS.name)
    return None


def why_needless(
    measured: Sequence[Baseline], backend: Backend, variant: Variant, safe_error: float, machine: Processor
) -> Failure | None:
    """Why ``variant`` is not tried on ``machine``'s processor: the library is faster in another precision than it can
    be in this one.

    The other has an error up to ``safe_error``: one near the budget may exceed it on held-out samples.
    """
    gain = math.inf if variant.exact or not variant.on_host else machine.most_gain(variant.arithmetic)
    on_cpu = {one.name for one in backend.variants if one.on_host}
    known = [b for b in measured if b.backend == backend.name and b.variant in on_cpu and b.keeps(safe_error)]
    exact_ms = min((b.outcome.latency_ms or 0.0 for b in known if b.exact), default=0.0)
    faster = [b for b in known if gain * (b.outcome.latency_ms or 0.0) < exact_ms]
    if not faster:
        return None
    why = f"{faster[0].name} takes less than 1/{gain:g} of float32's time, {variant.arithmetic.value} at least that"
    return Failure(Fault.NEEDLESS, why, rule=UNREACHABLE_PRECISION.name)


def measure_fallbacks(backends: Sequence[Backend], directory: Path, machine: Machine) -> tuple[Baseline, ...]:
    """Measure backends that run the user's model with open shapes; the latency is that of first runs.

    If none of ``backends`` does, any other that is usable here may, and then a variant that is a last resort.
    """
    names = {backend.name for backend in backends}
    target = machine.setting.target
    others = [one for one in usable_backends(target) if one.name not in names]
    measured: list[Baseline] = []
    with machine.exclusive() as fresh_process:
        for last_resort, group in ((False, backends), (False, others), (True, (*backends, *others))):
            for backend in filter(refuses_shapes, group):
                resorts = [variant.name for variant in backend.variants if variant.last_resort]
                for variant in resorts if last_resort else (DEFAULT.name,):
                    name = engine_name(backend.name, variant)
                    artifact = directory / f"{name.replace('/', '-')}.collage"
                    with fresh_process() as process:
                        job = FallbackJob(backend.name, variant, str(artifact))
                        outcome = outcome_of(process.call(job, machine.timeout_s))
                    measured.append(Baseline(name, backend.name, variant, artifact, outcome, target.digest))
            if any(fallback.outcome.ok for fallback in measured):
                break
    return tuple(measured)


def describe_fallback(measured: Sequence[Baseline], best: Baseline | None, first: bool = False) -> str:
    """One line that names which of ``measured`` runs inputs of any other shapes, or ``first`` requests of a shape."""
    if best is not None and first:
        return f"an answer in a library that does not refuse wrong shapes runs the first of each in {best.name}"
    if best is not None:
        return f"inputs of any other shapes run in {best.name}"
    why = "; ".join(f"{fallback.name}: {fallback.outcome.reason}" for fallback in measured)
    what = "can run the first request of each shape" if first else "takes inputs of other shapes than these"
    return f"no backend {what} ({why or 'none is able to'})"


def read_baselines(saved: Path, directory: Path, target: Target | None = None) -> tuple[Baseline, ...]:
    """Read the file of :func:`write_baselines`; the artifacts are in ``directory``.

    Empty if there is no file, or if any was measured on another target than ``target``: its code may not run here.

    Raises:
        DamagedFile: its content is something else.
    """
    if not saved.exists():
        return ()
    baselines = tuple(replace(b, artifact=directory / b.artifact) for b in read_json(saved, tuple[Baseline, ...]))
    return baselines if target is None or {b.target for b in baselines} <= {target.digest} else ()


def write_baselines(saved: Path, baselines: Sequence[Baseline]) -> None:
    """Write measured baselines atomically."""
    named = tuple(replace(baseline, artifact=Path(baseline.artifact.name)) for baseline in baselines)
    write_json(saved, tuple[Baseline, ...], named, indent=1)


def best_single(baselines: Sequence[Baseline], budget: float = 0.0) -> Baseline:
    """The fastest baseline within ``budget``; by default, of those in float32.

    Raises:
        InputError: there was no time to measure one.
        UnavailableError: no backend runs the whole model; the message gives each one's reason.
    """
    if out_of_time(baselines, budget):
        raise InputError(
            "the time was over before a backend ran that may be the answer: give more time (--time, --effort)"
        )
    runnable = [b for b in baselines if b.keeps(budget)]
    if not runnable:
        why = "; ".join(f"{b.name}: {b.outcome.reason}" for b in baselines)
        hangs = any(b.outcome.failure and b.outcome.failure.fault is Fault.HANG for b in baselines)
        mend = "fitness.timeout_s allows more time" if hangs else "check the model with its exporter"
        raise UnavailableError(f"no single backend runs this model ({why}): {mend}")
    return min(runnable, key=lambda b: b.outcome.latency_ms or 0.0)


def best_fallback(measured: Sequence[Sequence[Baseline]]) -> Baseline | None:
    """The one with the least geometric mean of latencies over the profiles, each with its own measurements.

    None if no backend runs the open model in all of them.
    """
    timed = ((one.name, one.outcome.latency_ms) for profile in measured for one in profile)
    logs = multimap((name, math.log(ms)) for name, ms in timed if ms is not None)
    everywhere = {name: sum(logs_of_one) for name, logs_of_one in logs.items() if len(logs_of_one) == len(measured)}
    best = min(everywhere, key=lambda name: everywhere[name], default=None)
    return next((fallback for fallback in (measured[0] if measured else ()) if fallback.name == best), None)


def feasible_baselines(
    baselines: Iterable[Baseline], limits: Limits, further: Bounds = MappingProxyType({})
) -> tuple[Baseline, ...]:
    """The single backends within ``limits`` and the ``further`` bounds; if there is none, those in float32: none is
    more exact."""
    running = [baseline for baseline in baselines if baseline.outcome.latency_ms is not None]
    within = [b for b in running if limits.allows(b.outcome.error, b.exact) and b.outcome.keeps(further)]
    return tuple(within or (baseline for baseline in running if baseline.exact))


def near_defaults(baselines: Sequence[Baseline], target: TargetLike, far: float) -> tuple[Baseline, ...]:
    """Those of ``baselines`` that are a library as a user runs it who passes the file and sets only the number of
    threads, and that take at most ``far`` times as long as the fastest: slower ones would take most of a race's time.

    They exclude a library whose default precision took no part, such as bfloat16 where only float32 may answer.
    """
    usual = {name: get_backend(name).like_defaults(target) for name in {baseline.backend for baseline in baselines}}
    ms = {baseline: baseline.outcome.latency_ms for baseline in baselines if baseline.outcome.latency_ms is not None}
    near = (baseline for baseline in ms if ms[baseline] <= far * min(ms.values()))
    return tuple(b for b in near if (variant := usual[b.backend]) is not None and variant.name == b.variant)
