"""Judges and times whole models in a measuring process: takes a loaded program, gives raw times and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.measure.anchored import Anchor, time_against, warm_up
from collage_evo.fitness.measure.answers import Measured
from collage_evo.fitness.measure.bursts import burst
from collage_evo.fitness.measure.exclusive import ExclusiveTiming
from collage_evo.fitness.measure.jobs import PlacementJob, Setting
from collage_evo.fitness.measure.judging import Estimate, Judge
from collage_evo.fitness.measure.loaded_pieces import LoadedPieceCache
from collage_evo.fitness.measure.patience import ended_after, patience_s
from collage_evo.fitness.measure.reference_process import AnchorEnded, ReferenceProcess
from collage_evo.fitness.measure.references import Reference
from collage_evo.fitness.measure.stopwatch import SingleSession
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.crowd import Crowd
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import Timing, TimingSettings


class Undisturbed(Protocol):
    """Times a session, again while others disturb it."""

    def __call__(self, session: Session, time_once: Callable[[], Timing], timing: TimingSettings) -> Timing: ...


class WholeModels:
    """What of a measuring process has to do with whole models.

    Args:
        setting: what all jobs share.
        target: with the cores of one session.
        shares: the cores of each session, where several run at once.
        references: reads the reference inputs and outputs when first needed.
        judge: holds outputs against them.
        exclusive: sees to it that who times does so alone.
        undisturbed: times what has no anchor.
    """

    def __init__(
        self,
        setting: Setting,
        target: Target,
        shares: Sequence[tuple[int, ...]],
        references: Callable[[], Sequence[Reference]],
        judge: Judge,
        exclusive: ExclusiveTiming,
        undisturbed: Undisturbed,
    ) -> None:
        self._setting, self._target, self._shares = setting, target, shares
        self._references, self._judge = references, judge
        self._exclusive, self._undisturbed = exclusive, undisturbed
        self._anchor: tuple[str, ReferenceProcess | SingleSession] | None = None
        self.loaded_pieces = LoadedPieceCache()

    def measure(
        self,
        program: Program | BuildFailure,
        timing: TimingSettings,
        exact: bool,
        give_up_ms: float,
        placed: PlacementJob | None = None,
    ) -> Measured | Failure:
        """Judge over the samples, check, time, and check again what the last timed run left.

        ``exact``: in float32 throughout, so that more than the tolerance is a fault. ``placed``: of a placement, how
        it is timed in a race; it is judged once it is timed, on all samples if it is not behind.
        """
        if isinstance(program, BuildFailure):
            return unbuilt(program)
        single_session, policy = self._setting.sessions == 1, self._setting.policy
        race = placed if single_session else None
        load = partial(Session, [program], self._target, load=self.loaded_pieces.loader() if race else None)
        with ExitStack() as stack:
            session = stack.enter_context(load())
            with ended_after(patience_s(give_up_ms * self._setting.sessions, session.device is not None)):
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
            rough = False
            if race:
                self._exclusive.over()
                near = timed.median_ms <= policy.near_best * race.best_ms
                judged, rough = self._judged(session, exact, estimate, near)
                if isinstance(judged, Failure):
                    return judged
        relative = error.relative if judged is None else judged
        return Measured(timed.times_ms, relative, error.max_abs, timed.disturbed, rough)

    def _judged(
        self, session: Session, exact: bool, estimate: Estimate | None, near: bool
    ) -> tuple[float | Failure | None, bool]:
        """What counts of a placement that is ``near`` the best, or not, and whether a part of the samples told it."""
        rough = self._judge.roughly(session, exact) if estimate is None and not near else None
        if rough is not None:
            return rough, True
        if estimate is None or (near and self._judge.promising(estimate)):
            return self._judge.over_samples(session, exact), False
        return self._judge.settled(estimate, exact), False

    def _timing(
        self, at_work: SingleSession | Crowd, timing: TimingSettings, give_up_ms: float, placed: PlacementJob | None
    ) -> Timing:
        """Time what is ready to run, alone on this machine from here on."""
        behind_ms = self._setting.policy.near_best * placed.best_ms if placed else math.inf
        if placed and placed.anchor and isinstance(at_work, SingleSession):
            once = partial(self._against_anchor, placed, at_work, timing, give_up_ms)
            try:
                return once()
            except AnchorEnded:  # no fault of the placement's
                self._anchor = None
                return once()
        self._exclusive.acquire_exclusive()
        once = partial(at_work.measure, timing, give_up_ms, behind_ms)
        return self._undisturbed(at_work.sessions[0], once, timing)

    def _against_anchor(
        self, placed: PlacementJob, at_work: SingleSession, timing: TimingSettings, give_up_ms: float
    ) -> Timing:
        anchor = self._ready_anchor(placed.anchor, placed.anchor_ms)
        warm_up(at_work, timing.warmup, give_up_ms)
        self._exclusive.acquire_exclusive()
        return time_against(anchor, at_work, timing, give_up_ms, placed.best_ms, self._setting.policy)

    def _ready_anchor(self, artifact: str, latency_ms: float) -> Anchor:
        """The anchor, loaded when it is first needed and kept."""
        if self._anchor is None or self._anchor[0] != artifact:
            self._anchor = artifact, self._loaded_anchor(Path(artifact))
        loaded = self._anchor[1]
        if isinstance(loaded, SingleSession):
            return Anchor(partial(burst, loaded), latency_ms)
        return Anchor(loaded.burst, latency_ms, lambda: loaded.used_s)

    def _loaded_anchor(self, artifact: Path) -> ReferenceProcess | SingleSession:
        if self._target.threads > 1:
            return ReferenceProcess(artifact, self._setting.files.reference, self._setting.registered)
        at_work = SingleSession(load_artifact(artifact))
        at_work.feed(self._references()[0][0])
        at_work.session.execute()
        return at_work


def unbuilt(failure: BuildFailure) -> Failure:
    """What could not be compiled, as an answer."""
    return Failure(Fault.BUILD, failure.reason)
