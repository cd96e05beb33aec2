"""Checking and timing of whole models in a worker process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.measure.exclusive import ExclusiveTiming
from collage_evo.measure.jobs import Measured, PlacementJob, Setting
from collage_evo.measure.judging import Estimate, Judge
from collage_evo.measure.loaded_pieces import LoadedPieceCache
from collage_evo.measure.reference_process import ReferenceProcess, ReferenceRunEnded
from collage_evo.measure.reference_run import ReferenceRun, time_against, warm_up
from collage_evo.measure.references import Reference
from collage_evo.measure.sample_batches import sample_batch
from collage_evo.measure.stopwatch import SingleSession
from collage_evo.measure.watchdog import timeout_s, watchdog
from collage_evo.placement.failure import Failure, Fault
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.crowd import Crowd
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import Timing, TimingSettings


class UncontendedTimer(Protocol):
    """Times a session, and repeats that while it is contended."""

    def __call__(self, session: Session, time_once: Callable[[], Timing], timing: TimingSettings) -> Timing: ...


class WholeModels:
    """The part of a worker process that checks and times whole models.

    Args:
        setting: what all jobs share.
        target: with the cores of one session.
        shares: the cores of each session, where several run at once.
        references: reads the reference inputs and outputs when first needed.
        judge: compares outputs with them.
        exclusive: the lock that makes timing exclusive.
        uncontended: times whatever has no reference run.
    """

    def __init__(
        self,
        setting: Setting,
        target: Target,
        shares: Sequence[tuple[int, ...]],
        references: Callable[[], Sequence[Reference]],
        judge: Judge,
        exclusive: ExclusiveTiming,
        uncontended: UncontendedTimer,
    ) -> None:
        self._setting, self._target, self._shares = setting, target, shares
        self._references, self._judge = references, judge
        self._exclusive, self._uncontended = exclusive, uncontended
        self._reference_run: tuple[str, ReferenceProcess | SingleSession] | None = None
        self.loaded_pieces = LoadedPieceCache()

    def measure(
        self,
        program: Program | BuildFailure,
        timing: TimingSettings,
        exact: bool,
        give_up_ms: float,
        placed: PlacementJob | None = None,
    ) -> Measured | Failure:
        """Judge over the samples, check, time, and check again the outputs of the last timed run.

        ``exact``: in float32 throughout, so that an error above the tolerance is a fault. ``placed``: for a
        placement, how a race times it; it is judged after the timing, on all samples if it is not behind.
        """
        if isinstance(program, BuildFailure):
            return unbuilt(program)
        single_session, policy = self._setting.sessions == 1, self._setting.policy
        race = placed if single_session else None
        load = partial(Session, [program], self._target, load=self.loaded_pieces.loader() if race else None)
        with ExitStack() as stack:
            session = stack.enter_context(load())
            with watchdog(timeout_s(give_up_ms * self._setting.sessions, session.device is not None)):
                error = self._judge.check(session, self._references()[:1], exact)
            if isinstance(error, Failure):
                return error
            if failure := self._judge.lost(session):
                return failure
            if failure := None if placed else self._judge.wrong_at_edges(session, exact):
                return failure
            estimate = self._judge.estimate(session, exact) if race else None
            if isinstance(estimate, Failure):
                return estimate
            judged = None if race else self._judge.over_samples(session, exact)
            if isinstance(judged, Failure):
                return judged
            at_work: SingleSession | Crowd = SingleSession(session)
            if not single_session:
                session.close()
                at_work = stack.enter_context(Crowd(load, self._shares))
            at_work.feed(self._references()[0][0])
            timed = self._timing(at_work, timing, give_up_ms, placed)
            for each in at_work.sessions:
                if failure := self._judge.check_last(each, self._references()[0], exact, error):
                    return failure.after(timed.n)
            approximate = False
            if race:
                self._exclusive.over()
                near = timed.median_ms <= policy.near_best * race.best_ms
                judged, approximate = self._judged(session, exact, estimate, near)
                if isinstance(judged, Failure):
                    return judged
        relative = error.relative if judged is None else judged
        return Measured(timed.times_ms, relative, error.max_abs, timed.contended, approximate)

    def _judged(
        self, session: Session, exact: bool, estimate: Estimate | None, near: bool
    ) -> tuple[float | Failure | None, bool]:
        """The error of a placement that is ``near`` the best or not, and whether only a part of the samples gave
        it."""
        approximate = self._judge.roughly(session, exact) if estimate is None and not near else None
        if approximate is not None:
            return approximate, True
        if estimate is None or (near and self._judge.promising(estimate)):
            return self._judge.over_samples(session, exact), False
        return self._judge.settled(estimate, exact), False

    def _timing(
        self, at_work: SingleSession | Crowd, timing: TimingSettings, give_up_ms: float, placed: PlacementJob | None
    ) -> Timing:
        """Time sessions that are ready to run, with exclusive use of this machine from here on."""
        behind_ms = self._setting.policy.near_best * placed.best_ms if placed else math.inf
        if placed and placed.reference_run and isinstance(at_work, SingleSession):
            once = partial(self._against_reference_run, placed, at_work, timing, give_up_ms)
            try:
                return once()
            except ReferenceRunEnded:  # not the placement's fault
                self._reference_run = None
                return once()
        self._exclusive.acquire_exclusive()
        once = partial(at_work.measure, timing, give_up_ms, behind_ms)
        return self._uncontended(at_work.sessions[0], once, timing)

    def _against_reference_run(
        self, placed: PlacementJob, at_work: SingleSession, timing: TimingSettings, give_up_ms: float
    ) -> Timing:
        reference_run = self._ready_reference_run(placed.reference_run, placed.reference_run_ms)
        warm_up(at_work, timing.warmup, give_up_ms)
        self._exclusive.acquire_exclusive()
        return time_against(reference_run, at_work, timing, give_up_ms, placed.best_ms, self._setting.policy)

    def _ready_reference_run(self, artifact: str, latency_ms: float) -> ReferenceRun:
        """The reference run, loaded when first needed and reused."""
        if self._reference_run is None or self._reference_run[0] != artifact:
            self._reference_run = artifact, self._loaded_reference_run(Path(artifact))
        loaded = self._reference_run[1]
        if isinstance(loaded, SingleSession):
            return ReferenceRun(partial(sample_batch, loaded), latency_ms)
        return ReferenceRun(loaded.sample_batch, latency_ms, lambda: loaded.used_s)

    def _loaded_reference_run(self, artifact: Path) -> ReferenceProcess | SingleSession:
        if self._target.threads > 1:
            return ReferenceProcess(artifact, self._setting.files.reference, self._setting.registered)
        at_work = SingleSession(load_artifact(artifact))
        at_work.feed(self._references()[0][0])
        at_work.session.execute()
        return at_work


def unbuilt(failure: BuildFailure) -> Failure:
    """The answer for a model that could not be compiled."""
    return Failure(Fault.NEEDLESS if failure.needless else Fault.BUILD, failure.reason)
