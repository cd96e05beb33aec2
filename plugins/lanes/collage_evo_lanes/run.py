"""A bound region on lanes: one call that runs the steps of all lanes and their waits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from collage_evo.errors import one_line
from collage_evo_lanes.lane_threads import LaneThreads, closed_lock, lane_threads_here, open_lock

Action = Callable[[], object]
_PAUSE_S = 0.001
"""After a failure: between looks whether all lanes have stopped."""


@dataclass(frozen=True)
class Task:
    """One step of a lane, and the positions of the steps of other lanes that it waits for.

    ``told``: the step's description in error messages.
    """

    lane: int
    call: Action
    waits: tuple[int, ...]
    description: str


@dataclass(frozen=True)
class _Script:
    """The actions of one lane in a run, and the description of those that are steps, by identity."""

    actions: tuple[Action, ...]
    description: Mapping[int, str]


class _Stopped(Exception):
    """Another lane has failed."""


@dataclass(frozen=True)
class _Failure:
    error: BaseException
    description: str


class _State:
    """State that the lanes of one run share. It has no reference to their actions, so that none is in a cycle."""

    def __init__(self, lanes: int) -> None:
        self.failure: _Failure | None = None
        self.handoffs: list[threading.Lock] = []
        self.lane_threads: LaneThreads | None = None
        self.begun = [False] * lanes
        self.ended = [False] * lanes

    def fail(self, error: BaseException, description: str) -> None:
        """Stop all lanes at their next wait; the first failure counts."""
        if isinstance(error, _Stopped):
            return
        if self.failure is None:
            self.failure = _Failure(error, description)
        for lock in self.handoffs:
            open_lock(lock)


class LaneCall:
    """Runs ``tasks``, given in a sequential order, the first lane in the calling thread.

    After a failure in any lane all stop, the failure is raised here, and the next call begins afresh. Not for several
    threads at a time. Lanes are ``width`` cores wide. ``keep`` is memory that tasks use; this object holds it.
    """

    def __init__(self, lanes: int, tasks: Sequence[Task], keep: object = None, width: int = 1) -> None:
        self._lanes, self._width = lanes, width
        self._tasks = tuple(tasks)
        self._keep = keep
        self._held = threading.local()
        self._at_work = False
        """Whether a run has begun and has not come to its end, be that a failure."""
        self._begin_afresh()

    def __call__(self) -> None:
        """Run all tasks once.

        Raises:
            RuntimeError: a lane failed, with the step in the message, or a run was interrupted twice before. A
                MemoryError in a lane stays one.
        """
        if self._at_work:
            raise RuntimeError("lanes: a run was given up while a lane was at work: load the region again")
        action: Action = _nothing
        state = self._state
        state.lane_threads = self._lane_threads()
        state.begun, state.ended = [False] * self._lanes, [False] * self._lanes
        self._at_work, state.lane_threads.usable = True, False
        try:
            for action in self._own.actions:
                action()
        except BaseException as error:
            self._settle(error, self._own.description.get(id(action), ""))
            if not isinstance(error, Exception):
                raise
        else:
            if state.failure is not None:
                self._settle(_Stopped(), "")
        if state.failure is not None:
            _raise(state.failure)
        state.lane_threads.usable = True
        state.lane_threads, self._at_work = None, False

    def _lane_threads(self) -> LaneThreads:
        """The calling thread's lane threads; they exist as long as that thread and this call."""
        lane_threads: LaneThreads | None = getattr(self._held, "lane_threads", None)
        if lane_threads is None or not lane_threads.usable or lane_threads.pid != os.getpid():
            lane_threads = self._held.lane_threads = lane_threads_here(self._lanes, self._width)
        return lane_threads

    def _settle(self, error: BaseException, description: str) -> None:
        """Stop every lane, wait until all have stopped, and prepare all for another run."""
        state = self._state
        assert state.lane_threads is not None
        state.fail(error, description)
        # A second interrupt may come while a lane hangs: then neither this call nor the lane threads are used again.
        while any(begun and not ended for begun, ended in zip(state.begun, state.ended, strict=True)):
            time.sleep(_PAUSE_S)
        self._begin_afresh()
        self._at_work, state.lane_threads.usable = False, True

    def _begin_afresh(self) -> None:
        """Make closed locks, and each lane's actions on them."""
        self._state = state = _State(self._lanes)
        before: list[list[Action]] = [[] for _ in self._tasks]
        after: list[list[Action]] = [[] for _ in self._tasks]
        woken_by = _wakers(self._tasks)
        for place, task in enumerate(self._tasks):
            for maker in task.waits:
                if woken_by.get(place) != maker:
                    lock = closed_lock()
                    state.handoffs.append(lock)
                    after[maker].append(lock.release)
                    before[place].append(partial(_wait, state, lock))
        at_once: list[Action] = []
        at_last: list[Action] = []
        for place, waker in woken_by.items():
            lane, done = self._tasks[place].lane, closed_lock()
            script = self._script(lane, [], before, after, [])
            begin = partial(_begin, state, lane, partial(_run_lane, state, lane, script, done))
            (at_once if waker is None else after[waker]).insert(0, begin)
            at_last.append(done.acquire)
        self._own = self._script(0, at_once, before, after, at_last)

    def _script(
        self,
        lane: int,
        at_once: Sequence[Action],
        before: Sequence[Sequence[Action]],
        after: Sequence[Sequence[Action]],
        at_last: Sequence[Action],
    ) -> _Script:
        actions = list(at_once)
        own = [(place, task) for place, task in enumerate(self._tasks) if task.lane == lane]
        for place, task in own:
            actions += [*before[place], task.call, *after[place]]
        return _Script((*actions, *at_last), {id(task.call): task.description for _, task in own})


def _wakers(tasks: Sequence[Task]) -> dict[int, int | None]:
    """By the first task of each lane but the caller's, the caller's task that wakes the lane; None: at once.

    A lane that would first wait for one of the caller's tasks is woken by that task, so that it wakes only once.
    """
    found: dict[int, int | None] = {}
    begun = {0}
    for place, task in enumerate(tasks):
        if task.lane not in begun:
            begun.add(task.lane)
            found[place] = max((maker for maker in task.waits if tasks[maker].lane == 0), default=None)
    return found


def _nothing() -> None:
    """The no-op before the first action."""


def _wait(state: _State, lock: threading.Lock) -> None:
    lock.acquire()
    if state.failure is not None:
        raise _Stopped


def _begin(state: _State, lane: int, job: Action) -> None:
    assert state.lane_threads is not None
    state.lane_threads.give(lane, job)


def _run_lane(state: _State, lane: int, script: _Script, done: threading.Lock) -> None:
    action: Action = _nothing
    state.begun[lane] = True  # before the check for a failure: a failing lane looks for lanes at work afterwards
    try:
        if state.failure is None:
            for action in script.actions:
                action()
    except BaseException as error:
        state.fail(error, script.description.get(id(action), ""))
    finally:
        state.ended[lane] = True
        open_lock(done)


def _raise(failure: _Failure) -> NoReturn:
    error = failure.error
    description = one_line(error) if isinstance(error, Exception) else ""
    message = f"lanes: {failure.description}: {type(error).__name__}: {description}"
    raise (MemoryError if isinstance(error, MemoryError) else RuntimeError)(message) from error
