"""Database of measured costs, for when a run is resumed: SQLite, keyed by structure, engine, version, target and
way of timing."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from collage_evo.codec import from_json, to_json
from collage_evo.errors import InputError
from collage_evo.files import reading
from collage_evo.fitness.jobs import Measured
from collage_evo.genome.failure import Failure

SCHEMA = 3
"""Schema version; costs of an older one are measured again."""
_MEND = "move it away, and costs are measured again"
_log = logging.getLogger(__name__)


class CostDatabase:
    """SQLite database, safe for several processes at once; a kill at any moment loses at most the row being written.

    A damaged file is set aside, and a new one begun: all of its content can be measured again.

    Raises:
        InputError: the file cannot be used at all.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if _is_damaged(path):
            _put_aside(path)
        with self._connect() as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if schema < SCHEMA:
                connection.execute("DROP TABLE IF EXISTS costs")
            if schema <= SCHEMA:
                connection.execute(f"PRAGMA user_version={SCHEMA}")
                connection.execute("CREATE TABLE IF NOT EXISTS costs (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
        if schema > SCHEMA:
            raise InputError(f"{path} has schema {schema}, this version reads up to {SCHEMA}: {_MEND}")

    def get(self, key: str) -> Measured | Failure | None:
        """The measurement under ``key``; None if there is none."""
        with self._connect() as connection:
            row = connection.execute("SELECT answer FROM costs WHERE key = ?", (key,)).fetchone()
            return None if row is None else from_json(row[0], Measured | Failure)

    def put(self, key: str, answer: Measured | Failure) -> None:
        """Store an answer; it replaces an older one."""
        text = to_json(answer, Measured | Failure)
        with self._connect() as connection:
            connection.execute("INSERT OR REPLACE INTO costs VALUES (?, ?)", (key, text))

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with (
            reading(self._path, _MEND, wrong="cannot be used"),
            contextlib.closing(sqlite3.connect(self._path, timeout=30)) as connection,
            connection,
        ):
            yield connection


def _is_damaged(path: Path) -> bool:
    """Whether the file is no database, or one with invalid pages. A locked one is not damaged."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",))
    except sqlite3.DatabaseError as error:
        return error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _put_aside(path: Path) -> None:
    for end in ("", "-wal", "-shm"):  # SQLite's own files next to it belong to no other database
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{end}", f"{path}.damaged{end}")
    _log.warning("%s is damaged: it is now %s.damaged, and costs are measured again", path, path.name)
