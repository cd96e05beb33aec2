"""Costs outlive the run that measured them, and are never misread."""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collage_evo.costs.database import CostDatabase
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import Measured
from collage_evo.genome.failure import Failure, Fault


def test_an_answer_comes_back_as_it_was_put(tmp_path: Path) -> None:
    answer = Measured((1.5, 2.5), 1e-7, 1e-6, contended=True)
    CostDatabase(tmp_path / "costs.sqlite").put("key", answer)
    again = CostDatabase(tmp_path / "costs.sqlite")
    assert again.get("key") == answer
    assert again.get("other") is None


def test_a_failure_is_kept_with_its_reason(tmp_path: Path) -> None:
    database = CostDatabase(tmp_path / "costs.sqlite")
    failure = Failure(Fault.WRONG_NUMBERS, "relative error 0.5", 0.5)
    database.put("key", failure)
    assert database.get("key") == failure


def test_costs_of_an_older_version_are_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=1")
        connection.execute("CREATE TABLE costs (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
        connection.execute("INSERT INTO costs VALUES ('key', '{\"reason\": \"build: no\"}')")
    database = CostDatabase(path)
    assert database.get("key") is None
    database.put("key", Measured((1.0,), 0.0, 0.0))
    assert CostDatabase(path).get("key") == Measured((1.0,), 0.0, 0.0)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    CostDatabase(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(InputError, match="schema 99"):
        CostDatabase(path)


@pytest.mark.parametrize("damage", ["no database", "a page"])
def test_what_is_damaged_is_put_aside_and_begun_anew(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, answer = tmp_path / "costs.sqlite", Measured((1.0,), 0.0, 0.0)
    for index in range(200):
        CostDatabase(path).put(str(index), answer)
    content = path.read_bytes()
    spoiled = b"no database " * 100 if damage == "no database" else content[:4096] + b"\xff" * (len(content) - 4096)
    path.write_bytes(spoiled)
    database = CostDatabase(path)
    assert "costs.sqlite.damaged" in caplog.text
    assert (tmp_path / "costs.sqlite.damaged").read_bytes() == spoiled
    assert database.get("1") is None
    database.put("1", answer)
    assert CostDatabase(path).get("1") == answer


def test_a_row_that_is_no_answer_and_a_file_that_cannot_be_opened_are_told_by_name(tmp_path: Path) -> None:
    database = CostDatabase(tmp_path / "costs.sqlite")
    with sqlite3.connect(tmp_path / "costs.sqlite") as connection:
        connection.execute("INSERT INTO costs VALUES ('key', '[[')")
    with pytest.raises(InputError, match=r"costs\.sqlite cannot be used .*move it away"):
        database.get("key")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder cannot be used .*move it away"):
        CostDatabase(tmp_path / "folder")


WRITER = """
import itertools, sys
from pathlib import Path
from collage_evo.costs.database import CostDatabase
from collage_evo.fitness.jobs import Measured
database = CostDatabase(Path(sys.argv[1]))
print("ready", flush=True)
for number in itertools.count():
    database.put(f"{sys.argv[2]}-{number}", Measured((float(number),), 0.0, 0.0))
    print(number, flush=True)
"""


def test_kills_at_random_moments_lose_nothing_that_was_written(tmp_path: Path) -> None:
    path, rng = tmp_path / "costs.sqlite", random.Random(0)
    for kill in range(10):
        command = [sys.executable, "-c", WRITER, str(path), str(kill)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.2))
            process.kill()
            done = process.stdout.read().splitlines()
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database = CostDatabase(path)
        written = [int(line) for line in done if line.isdigit()]
        for number in written[-3:]:
            assert database.get(f"{kill}-{number}") == Measured((float(number),), 0.0, 0.0)
