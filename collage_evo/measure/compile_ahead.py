"""Queue that compiles placements ahead of their measurement."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from collage_evo.measure.builders import Builders, build_job
from collage_evo.patterns.match import Placement
from collage_evo.placement.failure import Failure

DEPTH = 8
"""Placements that are being compiled, or wait to be measured, in addition to those being measured."""
LOOK_S = 0.05


@dataclass(frozen=True)
class Compiled:
    """A placement by its number in the order of proposals; ``failure`` is the reason why it cannot run."""

    number: int
    placement: Placement
    failure: Failure | None


class CompileAhead:
    """Pulls ``placements`` one by one in a thread of its own, since making one may take seconds, and compiles each.

    Use as a context manager: after it exits, it pulls no more. Up to ``width`` placements are handed out at a time.
    """

    def __init__(self, builders: Builders, placements: Iterable[Placement], width: int) -> None:
        self._builders, self._placements, self._width = builders, iter(placements), width
        self._ready: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
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

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._room.release()
        self._taker.join()

    def ready(self, any_right: Callable[[], bool], over: Callable[[], bool]) -> list[Compiled]:
        """The next compiled placements. Waits as long as more are to come; empty once time is ``over``. Thread-safe.

        While ``any_right`` is false the time limit does not apply, and the method waits as long as any placement is
        left. It always returns the first one: a generation that measures nothing would end the search.

        Raises:
            Exception: the error that making or compiling a placement raised.
        """
        while not self._closing and self._error is None and not (any_right() and over()):
            all_taken = not self._taker.is_alive()
            try:
                found = [self._ready.get(timeout=LOOK_S)]
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
        begun = [self._builders.begin(build_job(region)) for region in placement.regions]
        left = set(begun)

        def ended(future: Future[Any]) -> None:
            with self._counting:
                left.discard(future)
                if left or any(future.cancelled() for future in begun):
                    return
            try:
                answers = [future.result() for future in begun]
            except BaseException as error:  # a full disk affects all other placements too
                self._error = error
                return
            failure = next((answer for answer in answers if isinstance(answer, Failure)), None)
            self._ready.put(Compiled(number, placement, failure))

        for future in tuple(left):
            future.add_done_callback(ended)
