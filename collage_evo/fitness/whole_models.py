"""Checking and timing of whole models in a worker process: baselines, placements, fallbacks."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from collage_evo.backends.base import Executable, Target
from collage_evo.backends.registry import on_host
from collage_evo.backends.select import arithmetic_of
from collage_evo.backends.variants import Arithmetic
from collage_evo.files import files_in
from collage_evo.fitness.jobs import FallbackJob, Measured, PlacementJob, WholeJob
from collage_evo.fitness.judging import ActiveClock, Estimate, all_exact
from collage_evo.fitness.reference_run import ReferenceProcess, ReferenceRun, ReferenceSession, time_against, warm_up
from collage_evo.fitness.timing import SingleSession, timeout_s, watchdog
from collage_evo.fitness.worker_context import WorkerContext
from collage_evo.graph.check.edges import other_shapes
from collage_evo.graph.load.files import read_model
from collage_evo.graph.reference.distance import Error
from collage_evo.patterns.match import Placement
from collage_evo.pruning import LOST_PLACEMENT
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.crowd import Crowd
from collage_evo.runtime.manifest import EXACT
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import Loader, load_piece
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import LONG_S, Timing, TimingSettings

CACHE_BYTES = 2**28
"""Limit in bytes of files. Loaded pieces took three times as much; a worker process of 2 GiB is replaced."""

_Key = tuple[Path, tuple[str, ...], tuple[str, ...], int]


class WholeModels:
    """The part of a worker process that checks and times whole models."""

    def __init__(self, context: WorkerContext) -> None:
        self._context, self._judge = context, context.judge
        self._reference_run: tuple[str, ReferenceRun] | None = None
        self._loaded_pieces = LoadedPieceCache()

    def baseline(self, job: WholeJob) -> Measured:
        """Compile, write, check and time the user's model on one backend."""
        context = self._context
        program = context.compiler.whole(read_model(context.setting.files.original), job.backend, job.variant)
        exact = arithmetic_of(job.backend, job.variant) is Arithmetic.FLOAT32
        profile = Profile(program, {"baseline": job.backend, EXACT: exact})
        write_artifact(Path(job.artifact), [profile], context.target)
        load = partial(Session, [program], context.target)
        with load() as session:
            error = self._checked(session, exact, job.give_up_ms)
            self._judge.check_edges(session, exact)
            return self._judged_then_timed(session, load, exact, error, job.timing, job.give_up_ms)

    def placement(self, job: PlacementJob) -> Measured:
        """Compile, check and time a placement, and judge it over the samples.

        Of several sessions the first is judged before they are timed. A single session races: it is judged after the
        timing, while others may time, and on all samples only if it is not behind, or the job says so.
        """
        context = self._context
        context.expect_any_backend()
        placement = Placement(job.regions)
        program = context.compiler.placement(context.graph, placement)
        exact, races = all_exact(placement), context.setting.sessions == 1
        load = partial(Session, [program], context.target, load=self._loaded_pieces.loader() if races else None)
        with load() as session:
            error = self._checked(session, exact, job.give_up_ms)
            near_ms = LOST_PLACEMENT.number * job.best_ms
            if not races:
                return self._judged_then_timed(session, load, exact, error, job.timing, job.give_up_ms, near_ms)
            clock = ActiveClock()  # while this process is halted for another's timing, nothing gets warm
            estimate = self._judge.estimate(session, exact)
            warm = estimate is not None and clock() >= LONG_S
            single = SingleSession(session)
            single.feed(context.timed)
            if job.reference_run:
                reference_run = self._ready_reference_run(job.reference_run)
                warm_up(single, 0 if warm else job.timing.warmup, job.give_up_ms, clock)
                context.exclusive.acquire_exclusive()
                reference_ms, limits_ms = job.reference_run_ms, (job.give_up_ms, job.best_ms)
                timed = time_against(reference_run, reference_ms, single, job.timing, *limits_ms)
            else:
                timed = self._by_clock(single, job.timing, job.give_up_ms, near_ms)
            self._judge.check_last(session, context.last_timed, exact, error, timed.n)
            context.exclusive.release()
            near = timed.median_ms <= near_ms
            judged, approximate = self._judged(session, exact, estimate, near, job.on_all_samples)
        relative = error.relative if judged is None else judged
        return Measured(timed.times_ms, relative, error.max_abs, contended=timed.contended, rough=approximate)

    def fallback(self, job: FallbackJob) -> Measured:
        """Compile, write and check the model with open shapes, and time the first runs of new sessions."""
        context = self._context
        files = context.setting.files
        fixed = files.dynamic.exists()  # the shapes of the run: otherwise its model is open, its references of many
        model = read_model(files.dynamic if fixed else files.original)
        program = context.compiler.whole(model, job.backend, job.variant)
        write_artifact(Path(job.artifact), [Profile(program, {"fallback": job.backend})], context.target)
        shapes = other_shapes(model, context.references[0][0], job.seconds) if fixed else []
        others = [(dict(feeds), dict(expected)) for feeds, expected in shapes]
        context.exclusive.acquire_exclusive()
        times: list[float] = []
        error = Error(0.0, 0.0)
        began = time.monotonic()
        while len(times) < job.loads and (not times or time.monotonic() - began < job.seconds):
            with Session([program], context.target) as session:
                session.feed(context.timed.feeds[0])
                start = time.perf_counter()
                session.execute()
                times.append((time.perf_counter() - start) * 1e3)
                if len(times) == 1:
                    error = self._judge.check(session, context.references, exact=True)
                    self._judge.check(session, others, exact=True, when=", for inputs of other shapes")
        return Measured(tuple(times), error.relative, error.max_abs)

    def _checked(self, session: Session, exact: bool, give_up_ms: float) -> Error:
        """The error of the first run, in a time that no warm run within ``give_up_ms`` exceeds."""
        sessions = self._context.setting.sessions
        with watchdog(timeout_s(give_up_ms * sessions, session.clock)):
            error = self._judge.check(session, self._context.references[:1], exact)
        self._judge.keep_nonfinite(session)
        return error

    def _judged_then_timed(
        self,
        session: Session,
        load: Callable[[], Session],
        exact: bool,
        error: Error,
        timing: TimingSettings,
        give_up_ms: float,
        behind_ms: float = math.inf,
    ) -> Measured:
        """Judge ``session`` over the samples, then time it, or as many as are to be at work, and check the last
        runs."""
        context = self._context
        judged = self._judge.over_samples(session, exact)
        if several := context.setting.sessions > 1:
            session.close()
        with Crowd(load, context.shares) if several else nullcontext(SingleSession(session)) as at_work:
            at_work.feed(context.timed)
            timed = self._by_clock(at_work, timing, give_up_ms, behind_ms)
            for each in at_work.sessions:
                self._judge.check_last(each, context.last_timed, exact, error, timed.n)
        relative = error.relative if judged is None else judged
        return Measured(timed.times_ms, relative, error.max_abs, contended=timed.contended)

    def _judged(
        self, session: Session, exact: bool, estimate: Estimate | None, near: bool, on_all: bool
    ) -> tuple[float | None, bool]:
        """The error of a placement that is ``near`` the best or not, and whether only a part of the samples gave
        it. The relative error is ``on_all`` samples whatever that of few is."""
        approximate = self._judge.roughly(session, exact) if estimate is None and not near else None
        if approximate is not None:
            return approximate, True
        if estimate is None or on_all or (near and self._judge.promising(estimate)):
            known = () if estimate is None else estimate.pairs
            return self._judge.over_samples(session, exact, known=known), False
        return self._judge.accepted(estimate.error, exact), False

    def _by_clock(
        self, at_work: SingleSession | Crowd, timing: TimingSettings, give_up_ms: float, behind_ms: float
    ) -> Timing:
        """Time sessions that are ready to run, with exclusive use of this machine from here on."""
        self._context.exclusive.acquire_exclusive()
        once = partial(at_work.measure, timing, give_up_ms, behind_ms)
        return self._context.uncontended(at_work.sessions[0], once, timing)

    def _ready_reference_run(self, artifact: str) -> ReferenceRun:
        """The reference run, loaded when first needed and reused."""
        if self._reference_run is None or self._reference_run[0] != artifact:
            setting = self._context.setting
            several = self._context.target.threads > 1
            paths = Path(artifact), setting.files.reference
            reference_run = ReferenceProcess(*paths, setting.registered) if several else ReferenceSession(*paths)
            self._reference_run = artifact, reference_run
        return self._reference_run[1]


class LoadedPieceCache:
    """Least-recently-used cache of loaded pieces, bounded by the bytes of their files.

    A cached piece is bound to new buffers when the program that it was bound for is closed. A program that contains a
    piece twice loads it twice. Pieces on an accelerator are loaded anew each time, because they take memory there.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES, load: Loader = load_piece) -> None:
        self._most_bytes, self._load = most_bytes, load
        self._loaded: OrderedDict[_Key, tuple[Executable, int]] = OrderedDict()

    def loader(self) -> Loader:
        """A loader for the pieces of one program, from the cache where possible. No other program may be open at the
        same time."""
        used: Counter[Path] = Counter()

        def load(piece: Piece, program: Program, target: Target) -> Executable:
            used[piece.directory] += 1
            key = (piece.directory, piece.inputs, piece.outputs, used[piece.directory])
            if key in self._loaded:
                self._loaded.move_to_end(key)
                return self._loaded[key][0]
            size = sum(path.stat().st_size for path in files_in(piece.directory).values())
            self._make_room(size)
            executable = self._load(piece, program, target)
            if on_host(piece.backend, piece.variant):
                self._loaded[key] = (executable, size)
            return executable

        return load

    def _make_room(self, size: int) -> None:
        while self._loaded and size + sum(nbytes for _, nbytes in self._loaded.values()) > self._most_bytes:
            self._loaded.popitem(last=False)
