"""Building processes that compile regions ahead of their timing, and the queue that feeds them placements."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from collage_evo.fitness.jobs import ArtifactJob, Asks, BuildJob, Compiled, Written, bare
from collage_evo.fitness.pool import WorkerPool
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.slots import timing_slots
from collage_evo.patterns.match import Match, Placement, Region

LONG_BUILD_S = 4.0
"""Processor time in seconds of a piece from which on its engine may use only half of the processes."""
DEPTH = 8
"""Placements that are being compiled, or wait to be measured, in addition to those being measured."""
_LATE = Failure(Fault.CLOSED, "no time was left to compile it")
_NO_BUILDER = Failure(Fault.CLOSED, "no process of this machine compiles")
A = TypeVar("A")


class Builders(AbstractContextManager["Builders"]):
    """Building processes next to a pool's worker processes, one for each core, started when first needed.

    On several threads only one placement is timed at once, and one process would compile its regions one after the
    other. So the next placements are compiled ahead, on every core; while something is timed, building processes are
    halted. Pieces pass through the cache on disk. A cluster's workers compile for themselves.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._timeout_s = pool.config.timeout_s
        config = pool.config
        slots = timing_slots(config.cores, config.setting.target.threads) if pool.workers.local else ()
        self._sandboxes = [config.process(cores) for cores in slots for _ in cores]
        self._idle: queue.LifoQueue[Sandbox] = queue.LifoQueue()  # no more processes than regions at a time
        for sandbox in self._sandboxes:
            self._idle.put(sandbox)
        self._long: set[tuple[str, ...]] = set()
        """Engines of which a piece took long: they leave processes to others."""
        count = len(self._sandboxes) or 1
        self._quick, self._slow = ThreadPoolExecutor(count), ThreadPoolExecutor(max(1, count // 2))
        self._known: dict[BuildJob, Future[Compiled | Failure]] = {}
        self._again: set[BuildJob] = set()
        """Jobs tried once more after they had failed for what may have been the machine's fault of the moment."""

    def begin(self, job: BuildJob) -> Future[Compiled | Failure]:
        """Start compiling ``job``, unless it was compiled before; once more if it failed for a reason that may
        pass."""
        known = self._known.get(job)
        if known is not None and (job in self._again or not _may_pass(known)):
            return known
        if known is not None:
            self._again.add(job)
        if not self._sandboxes:
            self._known[job] = _done(Compiled())  # a cluster's workers compile when they need it
        else:
            threads = self._slow if job.region.family in self._long else self._quick
            self._known[job] = threads.submit(self._build, job)
        return self._known[job]

    def build(self, jobs: Iterable[BuildJob], seconds: float = math.inf) -> Mapping[BuildJob, Failure]:
        """Compile all ``jobs``; returns why some cannot be compiled.

        After ``seconds`` the call stops waiting for the others, which go on: their answer is a failure
        (``Fault.CLOSED``).
        """
        begun = {job: self.begin(job) for job in jobs}
        done, _ = wait(begun.values(), None if math.isinf(seconds) else max(0.0, seconds))
        answers = {job: future.result() if future in done else _LATE for job, future in begun.items()}
        return {job: answer for job, answer in answers.items() if isinstance(answer, Failure)}

    def write(self, job: ArtifactJob) -> Future[Written | Failure]:
        """Start writing an artifact of pieces that were compiled before; a cluster's workers do not."""
        if not self._sandboxes:
            return _done(_NO_BUILDER)
        return self._quick.submit(self._call, job)

    def _build(self, job: BuildJob) -> Compiled | Failure:
        answer = self._call(job)
        # ``seconds`` is processor time: by the clock any piece takes long on a shared machine, because building
        # processes wait, and are halted while something is timed.
        if answer.fault is Fault.HANG if isinstance(answer, Failure) else answer.seconds > LONG_BUILD_S:
            self._long.add(job.region.family)
        return answer

    def _call(self, job: Asks[A]) -> A | Failure:
        sandbox = self._idle.get()
        try:
            return sandbox.call(job, self._timeout_s)
        finally:
            self._idle.put(sandbox)

    def close(self) -> None:
        """End the processes; jobs that are not compiled yet stay so."""
        for threads in (self._quick, self._slow):
            threads.shutdown(wait=False, cancel_futures=True)
        for sandbox in self._sandboxes:
            sandbox.close()
        for threads in (self._quick, self._slow):
            threads.shutdown()

    def __exit__(self, *exception: object) -> None:
        self.close()


def _may_pass(known: Future[Compiled | Failure]) -> bool:
    """Whether the failure may not recur in a second attempt."""
    if not known.done() or known.cancelled():
        return False
    answer = known.result()
    return isinstance(answer, Failure) and answer.fault.passing


def _done(answer: A | Failure) -> Future[A | Failure]:
    future: Future[A | Failure] = Future()
    future.set_result(answer)
    return future


def build_job(part: Match | Region) -> BuildJob:
    """The job that compiles ``part``."""
    return BuildJob(bare(part))


@dataclass(frozen=True)
class CompiledPlacement:
    """A placement by its number in the order of proposals; ``failure`` is the reason why it cannot run."""

    number: int
    placement: Placement
    failure: Failure | None


class CompileAhead:
    """Pulls ``placements`` one by one in a thread of its own, since making one may take seconds, and compiles each.

    Use as a context manager: after it exits, it pulls no more. Up to ``width`` placements are handed out at a time.
    ``turn``: if given, it is held while a placement is compiled, one at a time. ``look_s``: how often it looks
    whether time is over.
    """

    def __init__(
        self,
        builders: Builders,
        placements: Iterable[Placement],
        width: int,
        turn: threading.Lock | None = None,
        look_s: float = 0.05,
    ) -> None:
        self._builders, self._placements, self._width = builders, iter(placements), width
        self._turn, self._look_s = turn, look_s
        # No SimpleQueue: if another thread takes what one was woken for, and it gets the interpreter back after its
        # deadline only, CPython 3.11 goes on to wait for a negative time, without end.
        self._ready: queue.Queue[CompiledPlacement] = queue.Queue()
        self._room = threading.Semaphore(DEPTH + width)
        self._counting = threading.Lock()
        self._closing = False
        self._error: BaseException | None = None
        self._given = 0
        self.making = threading.Lock()
        """Held while a placement is being made, which keeps a core at work."""
        self.taken = 0
        """Placements taken so far; all of them once the context is left."""
        self._taker = threading.Thread(target=self._take, daemon=True)

    def __enter__(self) -> CompileAhead:
        self._taker.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing = True
        self._room.release()
        self._taker.join()

    def ready(self, any_right: Callable[[], bool], over: Callable[[], bool]) -> list[CompiledPlacement]:
        """The next compiled placements. Waits as long as more are to come; empty once time is ``over``. Thread-safe.

        While ``any_right`` is false the time limit does not apply, and the method waits as long as any placement is
        left. It always returns the first one: a generation that measures nothing would end the search.

        Raises:
            Exception: the error that making or compiling a placement raised.
        """
        while not self._closing and self._error is None and not (any_right() and over()):
            all_taken = not self._taker.is_alive()
            try:
                found = [self._ready.get(timeout=self._look_s)]
            except queue.Empty:
                if all_taken and (self._given == self.taken or (any_right() and self._given)):
                    break
                continue
            with contextlib.suppress(queue.Empty):
                while len(found) < self._width:
                    found.append(self._ready.get_nowait())
            with self._counting:
                self._given += len(found)
            self._room.release(len(found))
            return found
        if self._error is not None:
            raise self._error
        return []

    def _take(self) -> None:
        try:
            while not self._closing:
                with self.making:
                    placement = next(self._placements, None)
                if placement is None:
                    return
                number, self.taken = self.taken, self.taken + 1
                self._hand_on(number, placement)
                self._room.acquire()
        except BaseException as error:  # ready() raises it in the thread that asks for placements
            self._error = error

    def _hand_on(self, number: int, placement: Placement) -> None:
        """Compile ``placement``, and queue it for :meth:`ready` once all of it is compiled."""
        while self._turn is not None and not self._turn.acquire(timeout=self._look_s):
            if self._closing:
                return
        try:
            begun = [self._builders.begin(build_job(region)) for region in placement.regions]
        except BaseException:  # raised again: whoever waits for its turn to measure must not wait for ever
            if self._turn is not None:
                self._turn.release()
            raise
        left = set(begun)

        def ended(future: Future[Any]) -> None:
            with self._counting:
                left.discard(future)
                if left:
                    return
            if self._turn is not None:
                self._turn.release()
            if any(future.cancelled() for future in begun):
                return
            try:
                answers = [future.result() for future in begun]
            except BaseException as error:  # a full disk affects all other placements too
                self._error = error
                return
            failure = next((answer for answer in answers if isinstance(answer, Failure)), None)
            self._ready.put(CompiledPlacement(number, placement, failure))

        for future in tuple(left):
            future.add_done_callback(ended)
