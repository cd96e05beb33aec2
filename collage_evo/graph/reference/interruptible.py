"""Interruptible library calls: work in another thread, with a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def interruptible(
    work: Callable[[], T], stop: Callable[[], None] = lambda: None, timeout_s: float | None = None
) -> T:
    """The result of ``work``, run in another thread, because this one cannot receive Ctrl-C inside a library call.

    On an interrupt, or after ``timeout_s``, ``stop`` asks the work to end, and the caller does not wait for that.

    Raises:
        TimeoutError: ``work`` took longer than ``timeout_s``.
    """
    future: Future[T] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised by result()
            future.set_exception(error)

    try:
        threading.Thread(target=do, daemon=True, name="interruptible").start()
        return future.result(timeout_s)
    except BaseException:
        stop()
        raise
