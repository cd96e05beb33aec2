"""Nothing that another user leaves where runs of a machine meet is followed, waited for, or written over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from collage_evo.errors import InputError
from collage_evo.fitness.exclusive import ExclusiveTiming
from collage_evo.hardware.presence import Doing, Presence, present
from collage_evo.hardware.private import SHARED, machine_directory, open_private, own_directory
from collage_evo.hardware.slots import acquire_slot
from tests.support.typed import not_none


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, this test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@pytest.fixture
def meeting(temporary: Path) -> Path:
    """Where runs of this person meet, before anybody made it."""
    return temporary / f"collage_evo-{os.geteuid()}"


def test_it_is_made_for_this_person_alone(meeting: Path) -> None:
    assert machine_directory() == meeting
    assert meeting.stat().st_mode & 0o777 == 0o700


def test_the_persons_own_runtime_directory_comes_first(
    meeting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert machine_directory() == runtime / "collage_evo"
    runtime.chmod(0o755)
    assert machine_directory() == meeting


def test_a_process_with_a_temporary_directory_of_its_own_meets_those_that_started_it(
    meeting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED, str(meeting.parent))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "its own"))
    assert machine_directory() == meeting


def linked(meeting: Path) -> None:
    (meeting.parent / "theirs").mkdir()
    meeting.symlink_to(meeting.parent / "theirs")


PLANTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (linked, "link"),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), "cannot be made"),
    "a file": (Path.touch, "cannot be made"),
    "a pipe": (os.mkfifo, "cannot be made"),
    "open to others": (lambda path: (path.mkdir(), path.chmod(0o777)), "chmod -R go-rwx"),
    "readable for others": (lambda path: (path.mkdir(), path.chmod(0o755)), "chmod -R go-rwx"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_not_safe_is_refused_in_one_line(meeting: Path, planted: str) -> None:
    plant, word = PLANTED[planted]
    plant(meeting)
    with pytest.raises(InputError, match=word) as refused:
        machine_directory()
    assert str(meeting) in str(refused.value)
    assert "TMPDIR" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_directory_of_another_user_is_refused(meeting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting.mkdir(mode=0o700)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    meeting.rename(meeting.with_name(f"collage_evo-{mine + 1}"))
    with pytest.raises(InputError, match="belongs to another user"):
        machine_directory()


def test_what_others_may_only_read_is_safe_where_it_may_be_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert own_directory(tmp_path, "cache.dir", readable=True) == tmp_path
    tmp_path.chmod(0o775)
    with pytest.raises(InputError, match=r"write into it: chmod -R go-w .* or set cache\.dir"):
        own_directory(tmp_path, "cache.dir", readable=True)


@pytest.fixture
def directory(temporary: Path) -> Path:
    return machine_directory()


def precious(folder: Path) -> Path:
    """A file of the person's that nothing may touch."""
    path = folder / "thesis.txt"
    path.write_text("years of work")
    return path


USERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "core": ("core-0.lock", lambda directory: acquire_slot(((0,),))),
    "door": ("door.lock", ExclusiveTiming),
    "room": ("room.lock", ExclusiveTiming),
}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_lock_that_is_no_file_is_named_and_neither_followed_nor_waited_for(
    directory: Path, user: str, kind: str
) -> None:
    name, use = USERS[user]
    thesis = precious(directory)
    plants: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(thesis), "pipe": os.mkfifo, "directory": Path.mkdir
    }  # fmt: skip
    plants[kind](directory / name)
    with pytest.raises(InputError, match=f"{name} .*: remove it"):
        use(directory)
    assert thesis.read_text() == "years of work"


def test_who_gets_no_cores_for_a_file_that_is_none_holds_and_wants_none(directory: Path) -> None:
    (directory / "core-1.lock").mkdir()
    with pytest.raises(InputError, match=r"core-1\.lock"):
        acquire_slot(((0, 1),))
    assert not present(directory)
    slot = not_none(acquire_slot(((0,),), timeout_s=0.0))
    slot.release()


def test_a_note_follows_no_link(directory: Path) -> None:
    thesis = precious(directory)
    (directory / "present").mkdir()
    first = Presence(directory, "mine")
    process, number = first._path.name.split("-")
    (directory / "present" / f".{process}-{int(number) + 1}").symlink_to(thesis)
    with pytest.raises(InputError, match="remove it"):
        Presence(directory, "mine")
    assert thesis.read_text() == "years of work"
    first.close()


def test_what_lies_among_the_notes_and_is_none_hides_no_note(directory: Path) -> None:
    mine = Presence(directory, "mine")
    mine.note(Doing.TIMES)
    os.mkfifo(directory / "present" / "0-pipe")
    (directory / "present" / "0-link").symlink_to("0-pipe")
    found: list[list[Doing]] = []
    reader = threading.Thread(target=lambda: found.append([note.doing for note in present(directory)]), daemon=True)
    reader.start()
    reader.join(30)
    assert found == [[Doing.TIMES]]
    mine.close()


def test_others_cannot_open_what_is_opened_so(directory: Path) -> None:
    os.close(open_private(directory / "core-0.lock"))
    assert (directory / "core-0.lock").stat().st_mode & 0o077 == 0
