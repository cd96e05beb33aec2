"""Calls into libraries that a person may interrupt: takes work, gives its result, or ends it and says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def interruptible(
    work: Callable[[], T], stop: Callable[[], None] = lambda: None, timeout_s: float | None = None
) -> T:
    """What ``work`` gives, done in a thread of its own: no call into a library lets this one hear Ctrl-C.

    When this one is interrupted, or ``timeout_s`` is over, ``stop`` asks the work to end, which is not waited for.

    Raises:
        TimeoutError: it took longer than ``timeout_s``.
    """
    future: Future[T] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised where the result is asked for
            future.set_exception(error)

    try:
        threading.Thread(target=do, daemon=True, name="interruptible").start()
        return future.result(timeout_s)
    except BaseException:
        stop()
        raise
