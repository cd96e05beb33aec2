"""Store of a run directory: files that hold one typed value each, made once in a run's life and read later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from collage_evo.files import Stored, read_json, write_json

T = TypeVar("T")


@dataclass(frozen=True)
class Store:
    """The values that are stored in the run directory ``directory``."""

    directory: Path

    def get(self, stored: Stored[T]) -> T | None:
        """The value of ``stored``; None if there is none.

        Raises:
            DamagedFile: it is no such value; the message names the file and explains what to do.
        """
        path = self.path(stored)
        return read_json(path, stored.kind) if path.exists() else None

    def put(self, stored: Stored[T], value: T) -> T:
        """Write ``value`` atomically, replacing an earlier one."""
        path = self.path(stored)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, stored.kind, value)
        return value

    def once(self, stored: Stored[T], make: Callable[[], T]) -> T:
        """The value of ``stored``, made and written first if there is none. Raises as :meth:`get`."""
        found = self.get(stored)
        return self.put(stored, make()) if found is None else found

    def path(self, stored: Stored[T]) -> Path:
        """The file of ``stored``."""
        return self.directory / stored.path
