"""Measured costs that outlive a run: SQLite, keyed by structure, engine, version, target and way of timing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.fitness.measure.jobs import Answer

SCHEMA = 1


class CostDatabase:
    """Safe for several processes at once; a kill at any moment loses at most the row being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._connect() as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                (found,) = connection.execute("PRAGMA user_version").fetchone()
                if found not in (0, SCHEMA):
                    raise InputError(
                        f"cost database {path} has schema {found}, this version reads {SCHEMA}: "
                        "move it away, or set cache.dir to another directory"
                    )
                connection.execute(f"PRAGMA user_version={SCHEMA}")
                connection.execute("CREATE TABLE IF NOT EXISTS costs (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
        except sqlite3.DatabaseError as error:
            raise InputError(f"cost database {path} cannot be used ({error}): move it away") from error

    def get(self, key: str) -> Answer | None:
        """What was measured under ``key``."""
        with self._connect() as connection:
            row = connection.execute("SELECT answer FROM costs WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        return Answer.from_json(json.loads(row[0]))

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer, over an older one."""
        text = json.dumps(dataclasses.asdict(answer))
        with self._connect() as connection:
            connection.execute("INSERT OR REPLACE INTO costs VALUES (?, ?)", (key, text))

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=30)
        try:
            with connection:
                yield connection
        finally:
            connection.close()
