"""Store of stage records: one typed record each, made once in a run's life and read later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from collage_evo.files import read_json, write_json

T = TypeVar("T")


@dataclass(frozen=True)
class Store:
    """The records below ``work``, the work directory of a run: a JSON file for each stage."""

    work: Path

    def get(self, stage: str, kind: type[T]) -> T | None:
        """The record of ``stage``; None if there is none.

        Raises:
            DamagedFile: it is no such record; the message names the file and explains what to do.
        """
        path = self.path(stage)
        return read_json(path, kind) if path.exists() else None

    def put(self, stage: str, kind: type[T], record: T) -> T:
        """Write ``record`` atomically, replacing an earlier one."""
        self.work.mkdir(parents=True, exist_ok=True)
        write_json(self.path(stage), kind, record)
        return record

    def once(self, stage: str, kind: type[T], make: Callable[[], T]) -> T:
        """The record of ``stage``, made and written first if there is none. Raises as :meth:`get`."""
        recorded = self.get(stage, kind)
        return self.put(stage, kind, make()) if recorded is None else recorded

    def path(self, stage: str) -> Path:
        """The file of ``stage``."""
        return self.work / f"{stage}.json"
