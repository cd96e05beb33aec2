"""A file is there whole or not at all, whatever ends its writer; what is wrong with one that is read is one line."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from collage_evo.errors import CollageError, ConfigError, DamagedFile, InputError, describing_system_errors
from collage_evo.files import read_json, reading, write_whole


def test_the_new_content_takes_the_place_of_the_old_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_whole(path, "old")
    write_whole(path, "größer")
    assert path.read_text(encoding="utf-8") == "größer"
    write_whole(path, b"\0\1")
    assert path.read_bytes() == b"\0\1"
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_there_is_kept_where_asked_for(tmp_path: Path) -> None:
    path, before = tmp_path / "now", tmp_path / "before"
    for content in ("1", "2", "3"):
        write_whole(path, content, keep=before if path.exists() else None)
    assert (path.read_text(), before.read_text()) == ("3", "2")


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_full_disk_leaves_the_file_as_it_was_and_no_rest_and_the_error_has_its_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    write_whole(path, "old")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, full)
    with pytest.raises(InputError) as refused, describing_system_errors():
        write_whole(path, "new")
    assert str(refused.value).startswith(f"{path}: No space left on device; make room")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_is_on_disk_before_it_has_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            done.append(name)
            real(*args)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    write_whole(tmp_path / "result.json", "new")
    assert done == ["fsync", "replace", "fsync"]


@dataclass(frozen=True)
class Kept:
    """What a file holds."""

    count: int
    names: tuple[str, ...] = ()


def test_json_comes_back_as_what_it_is_of(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text('[{"count": 1, "names": ["a"]}, {"count": 2}]')
    assert read_json(tmp_path / "kept.json", tuple[Kept, ...]) == (Kept(1, ("a",)), Kept(2))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"count": "many"}', r"is damaged \(ValueError: count: 'many' is no int\): delete it"),
        ('{"names": []}', r"is damaged \(ValueError: 'count' is missing\)"),
        ("", "is damaged"),
        ("[" * 5000, "is damaged"),
        (b"\xff\xfe\x80", "is damaged"),
        (None, r"cannot be read \(No such file or directory\): delete it"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(tmp_path: Path, content: str | bytes | None, told: str) -> None:
    path = tmp_path / "kept.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DamagedFile, match=rf"^{path} {told}") as refused:
        read_json(path, Kept)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep"), OSError(5, "no input"), KeyError("a\nb")])
def test_whatever_is_raised_over_a_file_is_its_fault(tmp_path: Path, error: Exception) -> None:
    path = tmp_path / "a.npz"
    with pytest.raises(DamagedFile, match=r"a\.npz .*: take another$") as refused, reading(path, "take another"):
        raise error
    assert refused.value.__cause__ is error


def test_who_knows_better_is_not_talked_over(tmp_path: Path) -> None:
    with pytest.raises(CollageError, match=r"^the key is unknown$"), reading(tmp_path / "a", "start again"):
        raise ConfigError("the key is unknown")
