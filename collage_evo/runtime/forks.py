"""Fork safety: a forked process has the libraries and sessions of its parent, but none of their threads.

Some libraries wait for such a thread forever, as soon as they run or are freed.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable
from typing import Protocol

from collage_evo.errors import InputError, UnavailableError


class Forked(Protocol):
    """An object that must be notified in a forked process."""

    def forked(self) -> None:
        """Called first in the new process."""


class _Lineage:
    """Objects and backends loaded in this process, and in its ancestors by fork."""

    def __init__(self) -> None:
        self._listeners: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._waiting: set[str] = set()
        self._lost: frozenset[str] = frozenset()
        os.register_at_fork(after_in_child=self._forked)

    def register(self, one: Forked) -> None:
        """Notify ``one`` of forks, by a weak reference."""
        self._listeners.add(one)

    def use(self, backends: Iterable[str]) -> None:
        """Register ``backends`` that do not survive a fork, before they are loaded.

        Raises:
            UnavailableError: one of them was loaded before this process was forked.
        """
        wanted = set(backends)
        if lost := sorted(wanted & self._lost):
            raise UnavailableError(
                f"{lost[0]} had threads before this process was forked, and here it would wait for them for ever: "
                "fork before the first artifact is loaded, or start processes by spawn"
            )
        self._waiting |= wanted

    def _forked(self) -> None:
        self._lost |= self._waiting
        for one in list(self._listeners):
            one.forked()


LINEAGE = _Lineage()
"""The lineage of this process."""


def left_behind() -> None:
    """Refuse to run: the session's libraries have their threads in another process.

    Raises:
        InputError: always.
    """
    raise InputError("this session was loaded before its process was forked: fork first, then load the artifact")


def never_free(*objects: object) -> None:
    """Hold these objects until the process is gone, also while the interpreter ends."""
    for one in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
