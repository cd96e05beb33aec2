"""Rows of figures in a JSON file, from which a stopped benchmark continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from collage_evo.errors import CollageError
from collage_evo.files import write_whole


class Keyed(Protocol):
    """A dataclass of plain values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> tuple[object, ...]:
        """What it is a row of."""


R = TypeVar("R", bound=Keyed)


class Rows(Generic[R]):
    """The rows of a file; ``kind`` makes one from its fields."""

    def __init__(self, path: Path, kind: Callable[..., R]) -> None:
        self._path, self._lock = path, Lock()
        self._rows = [kind(**row) for row in json.loads(path.read_text())] if path.exists() else []

    def get(self, key: tuple[object, ...], folder: Path, measure: Callable[[Path], R]) -> R | None:
        """The row with ``key``: from the file, or measured in a folder of its own inside ``folder``.

        None where it cannot be measured, which is said.
        """
        for row in self._rows:
            if row.key == key:
                return row
        try:
            made = measure(folder / folder_name(*key))
        except CollageError as error:
            print(f"{key[0]} is left out: {error}", flush=True)
            return None
        with self._lock:
            self._rows.append(made)
            write_whole(self._path, json.dumps([asdict(row) for row in self._rows]))
        return made


def folder_name(*key: object) -> str:
    """Of what is kept for the row with ``key``."""
    return "-".join(map(str, key)).translate({ord(c): "_" for c in ":/?&="})
