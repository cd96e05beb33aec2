"""Measured costs that outlive a run: SQLite, keyed by structure, engine, version, target and way of timing."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.fitness.failure import Failure
from collage_evo.fitness.measure.answers import Measured, answer_to_json
from collage_evo.fitness.measure.read_answers import read_answer

SCHEMA = 2
"""Costs of an older one are measured again."""


class CostDatabase:
    """Safe for several processes at once; a kill at any moment loses at most the row being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._connect() as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found > SCHEMA:
                raise InputError(
                    f"cost database {path} has schema {found}, this version reads up to {SCHEMA}: "
                    "move it away, or set cache.dir to another directory"
                )
            if found < SCHEMA:
                connection.execute("DROP TABLE IF EXISTS costs")
            connection.execute(f"PRAGMA user_version={SCHEMA}")
            connection.execute("CREATE TABLE IF NOT EXISTS costs (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")

    def get(self, key: str) -> Measured | Failure | None:
        """What was measured under ``key``."""
        with self._connect() as connection:
            row = connection.execute("SELECT answer FROM costs WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        answer = read_answer(json.loads(row[0]))
        assert isinstance(answer, Measured | Failure), answer
        return answer

    def put(self, key: str, answer: Measured | Failure) -> None:
        """Keep an answer, over an older one."""
        text = json.dumps(answer_to_json(answer))
        with self._connect() as connection:
            connection.execute("INSERT OR REPLACE INTO costs VALUES (?, ?)", (key, text))

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            mend = "make room on its disk, or move it away"
            raise InputError(f"cost database {self._path} cannot be used ({error}): {mend}") from error
