"""Database of a run's measured costs, for when it is resumed: a line each, by structure, engine, version, target and
way of timing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from collage_evo.codec import from_json, to_json
from collage_evo.files import reading
from collage_evo.fitness.jobs import Measured
from collage_evo.genome.failure import Failure

_log = logging.getLogger(__name__)


class Row(NamedTuple):
    """One line of the file."""

    key: str
    answer: Measured | Failure


class CostDatabase:
    """Answers by key, in a file to which each is appended: a kill at any moment loses at most the one being written.

    Lines that cannot be read are counted in one warning, and what they held is measured again.

    Raises:
        DamagedFile: the file cannot be read at all.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, Measured | Failure] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with reading(path, "move it away, and costs are measured again"):
            lines = path.read_bytes().splitlines() if path.exists() else []
        damaged = 0
        for line in filter(None, lines):
            try:
                row = from_json(line, Row)
                self._answers[row.key] = row.answer
            except (ValueError, ArithmeticError, RecursionError):
                damaged += 1
        if damaged:
            _log.warning("damaged lines in %s (%d): what they held is measured again", path, damaged)

    def get(self, key: str) -> Measured | Failure | None:
        """The measurement under ``key``; None if there is none."""
        return self._answers.get(key)

    def put(self, key: str, answer: Measured | Failure) -> None:
        """Store an answer; it replaces an older one.

        Raises:
            OSError: it could not be written; the error names the file.
        """
        self._answers[key] = answer
        try:
            with self._path.open("a") as file:
                file.write(f"\n{to_json(Row(key, answer), Row)}")  # behind whatever a kill left of the line before
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error  # a write error names no file
