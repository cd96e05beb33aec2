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
from typing import Any

import pytest

from collage_evo.fitness.exclusive import ExclusiveTiming
from collage_evo.hardware.presence import AGAIN_S, Doing, Lookout, Note, Presence, present, waits
from collage_evo.hardware.private import SHARED, machine_directory
from collage_evo.hardware.slots import acquire_slot
from tests.fitness.helpers import LONG_S, until
from tests.support.typed import not_none

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
    """The machine's directory, this test's own."""
    monkeypatch.setenv(SHARED, str(tmp_path))
    return machine_directory()


def lookout(directory: Path, report: Callable[[str], None], **given: Any) -> Lookout:
    """One for which every wait has lasted for a minute already."""
    return Lookout(directory, "mine", report, look_s=0.02, now=lambda: time.time() + 60.0, **given)


def test_who_waits_for_cores_hears_which_run_has_them_and_since_when(directory: Path) -> None:
    lines: list[str] = []
    with subprocess.Popen([sys.executable, "-c", HOLD_CORE], stdout=subprocess.PIPE, text=True) as other:
        assert not_none(other.stdout).readline() == "held\n"
        got: list[object] = []
        thread = threading.Thread(target=lambda: got.append(acquire_slot(((0,),), "mine")))
        with lookout(directory, lines.append):
            thread.start()
            until(lambda: lines)
            assert not got
            other.send_signal(signal.SIGKILL)
            thread.join(LONG_S)
    assert got
    assert re.search(r"another run.*process 42 \(runs/other\) uses cores 0 since \d\d:\d\d:\d\d; ", lines[0])
    assert "-s target.cores=" in lines[0]


def test_who_waits_for_its_turn_hears_who_measures(directory: Path) -> None:
    lines: list[str] = []
    waited_s: list[float] = []
    first, second = ExclusiveTiming(directory, run="theirs"), ExclusiveTiming(directory, run="mine")
    with lookout(directory, lines.append, on_waited=waited_s.append):
        with first.job():
            first.acquire_exclusive()
            thread = threading.Thread(target=lambda: second.job().__enter__())
            thread.start()
            until(lambda: lines)
        thread.join(LONG_S)
    assert "theirs has been timing since" in lines[0]
    assert sum(waited_s) > 0
    assert "target.cores" not in lines[0], "turns are the machine's"


def test_it_is_said_again_while_the_wait_lasts_but_not_all_the_time(directory: Path) -> None:
    looks = itertools.count(step=AGAIN_S / 5)
    lines: list[float] = []
    theirs, mine = Presence(directory, "theirs"), Presence(directory, "mine")
    theirs.note(Doing.HAS_CORES, (0, 1))
    mine.note(Doing.WANTS_CORES, (1,))
    with lookout(directory, lambda _: lines.append(next(looks)), clock=lambda: next(looks)):
        until(lambda: len(lines) >= 3)
    assert all(AGAIN_S <= later - earlier < 2 * AGAIN_S for earlier, later in itertools.pairwise(lines))
    theirs.close()
    mine.close()


def test_a_note_of_a_process_that_was_killed_counts_for_nothing_and_goes(directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD_CORE], stdout=subprocess.PIPE, text=True) as other:
        not_none(other.stdout).readline()
        assert [note.run for note in present(directory)] == ["process 42 (runs/other)"]
        other.send_signal(signal.SIGKILL)
    assert list((directory / "present").iterdir())
    assert present(directory) == []
    assert not list((directory / "present").iterdir())


def test_a_released_slot_leaves_no_note(directory: Path) -> None:
    slot = not_none(acquire_slot(((0,),), "mine"))
    assert [(note.doing, note.cores) for note in present(directory)] == [(Doing.HAS_CORES, (0,))]
    slot.release()
    assert present(directory) == []


CORES = Note("mine", Doing.WANTS_CORES, (0, 1), since=100.0)
TURN = Note("mine", Doing.WANTS_TURN, (), since=100.0)


@pytest.mark.parametrize(
    ("mine", "others", "now", "said"),
    [
        (CORES, [Note("theirs", Doing.HAS_CORES, (1,), 50.0)], 110.0, ["theirs"]),
        (CORES, [Note("theirs", Doing.HAS_CORES, (1,), 50.0)], 102.5, ["theirs"]),
        (CORES, [Note("theirs", Doing.HAS_CORES, (1,), 50.0)], 101.0, []),
        (CORES, [Note("theirs", Doing.HAS_CORES, (2,), 50.0)], 110.0, [""]),
        (CORES, [Note("theirs", Doing.TIMES, (), 50.0)], 110.0, [""]),
        (CORES, [Note("mine", Doing.HAS_CORES, (1,), 50.0)], 110.0, []),
        (CORES, [], 110.0, [""]),
        (TURN, [Note("mine", Doing.TIMES, (), 90.0)], 110.0, []),
        (TURN, [Note("theirs", Doing.TIMES, (), 90.0)], 110.0, ["theirs"]),
    ],
)
def test_which_runs_are_waited_for(mine: Note, others: list[Note], now: float, said: list[str]) -> None:
    assert list(waits([mine, *others], "mine", now)) == said
