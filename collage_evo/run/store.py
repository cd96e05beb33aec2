"""What the stages of a run keep: a typed record each, made once in its life, read by whoever comes later."""

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
        """What ``stage`` kept; None where it has not.

        Raises:
            DamagedFile: it is no such record; the message names the file and says what to do.
        """
        path = self.path(stage)
        return read_json(path, kind) if path.exists() else None

    def put(self, stage: str, kind: type[T], record: T) -> T:
        """Keep ``record``, whole or not at all, in place of what was kept before."""
        self.work.mkdir(parents=True, exist_ok=True)
        write_json(self.path(stage), kind, record)
        return record

    def once(self, stage: str, kind: type[T], make: Callable[[], T]) -> T:
        """What ``stage`` kept, else what it makes, kept. Raises as :meth:`get`."""
        known = self.get(stage, kind)
        return self.put(stage, kind, make()) if known is None else known

    def path(self, stage: str) -> Path:
        """The file of ``stage``."""
        return self.work / f"{stage}.json"
