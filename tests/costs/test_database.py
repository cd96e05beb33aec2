"""Costs outlive the process that measured them, and are never misread."""

import errno
import os
from pathlib import Path

import pytest

from collage_evo.costs.database import CostDatabase
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import Measured
from collage_evo.genome.failure import Failure, Fault

ANSWERS = {
    "timed": Measured((1.5, 2.5), 1e-7, 1e-6, contended=True),
    "failed": Failure(Fault.WRONG_NUMBERS, "relative error 0.5", 0.5),
}
HUGE = b'["timed", {"kind": "Measured", "times_ms": [1%s], "relative_error": 0, "max_abs_error": 0}]' % (b"0" * 400)


def filled(path: Path) -> CostDatabase:
    database = CostDatabase(path)
    for key, answer in ANSWERS.items():
        database.put(key, answer)
    return database


def test_answers_come_back_as_they_were_put_last(tmp_path: Path) -> None:
    database = filled(tmp_path / "costs.jsonl")
    database.put("timed", Measured((1.0,), 0.0, 0.0))
    database.put("timed", ANSWERS["timed"])
    for found in (database, CostDatabase(tmp_path / "costs.jsonl")):
        assert {key: found.get(key) for key in (*ANSWERS, "other")} == {**ANSWERS, "other": None}


@pytest.mark.parametrize("left", range(1, 60, 7))
def test_a_kill_loses_at_most_the_line_that_is_written(tmp_path: Path, left: int) -> None:
    path = tmp_path / "costs.jsonl"
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + b"\n" + lines[-1][:left])
    CostDatabase(path).put("next", ANSWERS["timed"])
    again = CostDatabase(path)
    assert [again.get(key) for key in (*ANSWERS, "next")] == [*ANSWERS.values(), ANSWERS["timed"]]


@pytest.mark.parametrize(
    "damage", [b"no database", b"[[", b"\xff\xfe", b'["timed", {"kind": "No"}]', b"[" * 9999, HUGE]
)
def test_a_damaged_line_is_reported_and_measured_again(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "costs.jsonl"
    filled(path)
    path.write_bytes(path.read_bytes().replace(path.read_bytes().splitlines()[1], damage))
    database = CostDatabase(path)
    assert "costs.jsonl (1): what they held is measured again" in caplog.text
    assert (database.get("timed"), database.get("failed")) == (None, ANSWERS["failed"])


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match=rf"{path} .*move it away"):
            CostDatabase(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_for_which_there_is_no_room_is_an_error_with_the_file_s_name(tmp_path: Path) -> None:
    path = tmp_path / "costs.jsonl"
    database = CostDatabase(path)
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=str(path)) as refused:
        database.put("timed", ANSWERS["timed"])
    assert refused.value.errno == errno.ENOSPC
