"""Who waits for another run learns for which, and since when; what a dead process left misleads nobody."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from collage_evo.fitness.exclusive import ExclusiveTiming
from collage_evo.hardware import presence
from collage_evo.hardware.presence import Doing, Lookout, Note, Presence, present, waits
from collage_evo.hardware.private import machine_directory
from collage_evo.hardware.slots import acquire_slot

HOLD_CORE = """
import sys, time
from collage_evo.hardware.private import machine_directory
from collage_evo.hardware.slots import acquire_slot
slot = acquire_slot(((0,),), "process 42 (runs/other)")
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's directory, this test's own; waits are told of soon."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(presence, "SOON_S", 0.1)
    monkeypatch.setattr(presence, "LOOK_S", 0.02)
    return machine_directory()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def test_who_waits_for_cores_hears_which_run_has_them_and_since_when(directory: Path) -> None:
    lines: list[str] = []
    with subprocess.Popen([sys.executable, "-c", HOLD_CORE], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        got: list[object] = []
        thread = threading.Thread(target=lambda: got.append(acquire_slot(((0,),), "mine")))
        with Lookout(directory, "mine", lines.append):
            thread.start()
            until(lambda: lines)
            assert not got
            other.send_signal(signal.SIGKILL)
            thread.join(30)
    assert got
    assert re.search(r"another run.*process 42 \(runs/other\) uses cores 0 since \d\d:\d\d:\d\d; ", lines[0])
    assert "-s target.cores=" in lines[0]


def test_who_waits_for_its_turn_hears_who_measures(directory: Path) -> None:
    lines: list[str] = []
    waited_s: list[float] = []
    first, second = ExclusiveTiming(directory, run="theirs"), ExclusiveTiming(directory, run="mine")
    with Lookout(directory, "mine", lines.append, waited_s.append):
        with first.job():
            first.acquire_exclusive()
            thread = threading.Thread(target=lambda: second.job().__enter__())
            thread.start()
            until(lambda: lines)
        thread.join(30)
    assert "theirs has been timing since" in lines[0]
    assert sum(waited_s) > 0
    assert "target.cores" not in lines[0], "turns are the machine's"


def test_it_is_said_again_while_the_wait_lasts_but_not_all_the_time(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: float(next(looks))})
    monkeypatch.setattr(presence, "time", clock)
    monkeypatch.setattr(presence, "AGAIN_S", 5.0)
    lines: list[float] = []
    theirs, mine = Presence(directory, "theirs"), Presence(directory, "mine")
    theirs.note(Doing.HAS_CORES, (0, 1))
    mine.note(Doing.WANTS_CORES, (1,))
    with Lookout(directory, "mine", lambda _: lines.append(clock.monotonic())):
        until(lambda: len(lines) >= 3)
    assert all(5.0 <= later - earlier < 10.0 for earlier, later in itertools.pairwise(lines))
    theirs.close()
    mine.close()


def test_a_note_of_a_process_that_was_killed_counts_for_nothing_and_goes(directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD_CORE], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert [note.run for note in present(directory)] == ["process 42 (runs/other)"]
        other.send_signal(signal.SIGKILL)
    assert list((directory / "present").iterdir())
    assert present(directory) == []
    assert not list((directory / "present").iterdir())


def test_a_released_slot_leaves_no_note(directory: Path) -> None:
    slot = acquire_slot(((0,),), "mine")
    assert slot is not None
    assert [(note.doing, note.cores) for note in present(directory)] == [(Doing.HAS_CORES, (0,))]
    slot.release()
    assert present(directory) == []


MINE = Note("mine", Doing.WANTS_CORES, (0, 1), since=100.0)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([Note("theirs", Doing.HAS_CORES, (1,), 50.0)], ["theirs"]),
        ([Note("theirs", Doing.HAS_CORES, (2,), 50.0)], [""]),
        ([Note("theirs", Doing.TIMES, (), 50.0)], [""]),
        ([Note("mine", Doing.HAS_CORES, (1,), 50.0)], []),
        ([], [""]),
    ],
)
def test_only_who_holds_the_same_cores_is_waited_for(others: list[Note], said: list[str]) -> None:
    assert list(waits([MINE, *others], "mine", now=110.0)) == said


def test_a_run_that_takes_turns_with_itself_says_nothing() -> None:
    mine = Note("mine", Doing.WANTS_TURN, (), since=100.0)
    assert not waits([mine, Note("mine", Doing.TIMES, (), 90.0)], "mine", now=110.0)
    assert waits([mine, Note("theirs", Doing.TIMES, (), 90.0)], "mine", now=110.0)


def test_a_short_wait_is_not_told_of() -> None:
    theirs = Note("theirs", Doing.HAS_CORES, (1,), 50.0)
    assert not waits([MINE, theirs], "mine", now=101.0)
    assert waits([MINE, theirs], "mine", now=102.5)
