"""A piece is taken from the cache only where its code runs, and only as it was put there."""

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.backends.base import Target
from collage_evo.fitness.compile.cache import RECORD, SAME_BYTES, PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.fitness.jobs import Measured
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failure
from collage_evo.graph.convert.read import build_graph
from collage_evo.hardware.processor import this_machine
from collage_evo.patterns.match import Region
from tests.fitness.helpers import make_setting
from tests.fitness.test_faults import alone
from tests.support.faults import PLACE, install_faulty
from tests.support.models import chain

GRAPH = build_graph(chain(1))


def compiled(folder: Path, target: Target, run: str = "", taken: list[str] | None = None) -> Path:
    """The directory of the first operator's files."""
    cache = PieceCache(folder / "cache", 2**30, run, (taken if taken is not None else []).append)
    return Compiler(target, cache).region(GRAPH, Region(1, "onnxruntime", "default")).directory


def test_unlike_processors_share_no_piece(tmp_path: Path) -> None:
    here = this_machine()
    machines = [here, replace(here, cpu="another"), replace(here, features=here.features - {"avx2"} | {"avx9000"})]
    found = [compiled(tmp_path, Target("cpu", 1, (0,), machine)) for machine in machines]
    assert len(set(found)) == len(machines)


def test_the_same_target_on_other_cores_shares_them(tmp_path: Path) -> None:
    assert compiled(tmp_path, Target("cpu", 1, (0,))) == compiled(tmp_path, Target("cpu", 1, (1,)))


def test_variants_that_run_the_same_files_share_them(tmp_path: Path) -> None:
    compiler = Compiler(Target(), PieceCache(tmp_path / "cache", 2**30))
    regions = (Region(1, "ncnn", variant) for variant in ("default", "sgemm"))
    pieces = [compiler.region(GRAPH, region) for region in regions]
    assert [piece.variant for piece in pieces] == ["default", "sgemm"]
    assert len({piece.directory for piece in pieces}) == 1


def flip(piece: Path) -> None:
    (file,) = piece.iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(piece: Path) -> None:
    (file,) = piece.iterdir()
    file.write_bytes(file.read_bytes()[:-1])


def lose(piece: Path) -> None:
    (file,) = piece.iterdir()
    file.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flip": flip,
    "cut": cut,
    "lose": lose,
    "add": lambda piece: (piece / "more").write_text("x"),
    "lose record": lambda piece: (piece.parent / RECORD).unlink(),
    "garble record": lambda piece: (piece.parent / RECORD).write_text("[1]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_piece_is_built_again(tmp_path: Path, damage: str) -> None:
    piece = compiled(tmp_path, Target())
    sound = {file.name: file.read_bytes() for file in piece.iterdir()}
    DAMAGES[damage](piece)
    again = compiled(tmp_path, Target())
    assert {file.name: file.read_bytes() for file in again.iterdir()} == sound
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {again.parent.name}


def test_who_takes_a_piece_of_another_run_hears_of_it(tmp_path: Path) -> None:
    taken: list[str] = []
    piece = compiled(tmp_path, Target(), "first", taken)
    compiled(tmp_path, Target(), "first", taken)
    assert not taken
    compiled(tmp_path, Target(), "second", taken)
    assert taken == [piece.parent.name]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], Measured | Failure]:
    """What a run measures on a machine with a variant of the faulty backend; all share a cache."""
    setting = make_setting(tmp_path)
    for name, value in install_faulty(tmp_path / "plugin").items():
        monkeypatch.setenv(name, value)

    def measure(variant: str, run: str, place: str) -> Measured | Failure:
        monkeypatch.setenv(PLACE, place)
        with Sandbox(replace(setting, run=run), (), 2**30) as sandbox:
            return sandbox.call(alone(variant), 60.0)

    return measure


def only_piece(folder: Path) -> tuple[str, int]:
    """Who built it and when."""
    (piece,) = (folder / "cache").iterdir()
    return json.loads((piece / RECORD).read_text())["run"], (piece / RECORD).stat().st_mtime_ns


def test_a_crash_on_another_machines_code_is_not_the_backends(
    measured: Callable[[str, str, str], Measured | Failure], tmp_path: Path
) -> None:
    assert measured("native", "first", "here").times_ms
    assert only_piece(tmp_path)[0] == "first"
    there = measured("native", "second", "there")
    assert isinstance(there, Measured), there
    assert there.times_ms
    assert only_piece(tmp_path)[0] == "second"


@pytest.mark.parametrize(("variant", "reason"), [("crash", "SIGSEGV"), ("unloadable", "cannot be loaded")])
def test_what_fails_when_built_again_too_is_the_backends(
    measured: Callable[[str, str, str], Measured | Failure], tmp_path: Path, variant: str, reason: str
) -> None:
    assert reason in str(measured(variant, "first", ""))
    assert reason in str(measured(variant, "second", ""))
    second = only_piece(tmp_path)
    assert second[0] == "second"
    assert reason in str(measured(variant, "second", ""))  # its own piece: nothing to suspect
    assert only_piece(tmp_path) == second


def put(cache: PieceCache, key: str, size: int, content: bytes = b"\0") -> Path:
    work = cache.workdir()
    (work / "code").write_bytes(content * size)
    return cache.put(key, work) / "code"


def test_a_piece_that_was_written_to_through_a_link_is_built_again_by_its_own_run_too(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path / "cache", 10**6, run="this")
    os.link(put(cache, "a", 8), tmp_path / "link")
    assert cache.get("a")  # a link alone changes nothing
    (tmp_path / "link").write_bytes(b"1" * 8)
    assert cache.get("a") is None


def test_of_pieces_that_were_being_built_only_those_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    cache, ended = PieceCache(tmp_path, 10**6), PieceCache(tmp_path, 10**6)
    work, left = cache.workdir(), ended.workdir()
    del ended  # its process was killed
    cache.remove_abandoned()
    assert work.is_dir()
    assert not left.exists()
    cache.put("a", work)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}


def test_large_files_of_the_same_content_are_one(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path, 10**9)
    first, same = put(cache, "a", SAME_BYTES), put(cache, "b", SAME_BYTES)
    other, small = put(cache, "c", SAME_BYTES, b"1"), put(cache, "d", 9)
    assert first.samefile(same)
    assert len({path.stat().st_ino for path in (first, other, small, put(cache, "e", 9))}) == 4
    cache.discard("a")
    assert cache.get("b") == same.parent
    assert same.read_bytes() == bytes(SAME_BYTES)


def test_a_piece_that_is_built_with_a_link_to_another_s_file_is_found_again(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path, 10**9)
    first, work = put(cache, "a", SAME_BYTES), cache.workdir()
    os.link(first, work / "code")
    second = cache.put("b", work)
    assert [path.name for path in second.iterdir()] == ["code"]
    assert cache.get("b") == second


def test_no_piece_shares_a_file_that_was_written_to(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path, 10**9)
    put(cache, "a", SAME_BYTES).write_bytes(b"1" * SAME_BYTES)
    assert put(cache, "b", SAME_BYTES).read_bytes() == bytes(SAME_BYTES)


def test_a_file_of_several_pieces_counts_once(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path, 3 * SAME_BYTES + SAME_BYTES // 3)
    for second, (key, more) in enumerate({"a": 0, "b": 1, "c": 0, "d": 0, "e": 0}.items()):
        put(cache, key, SAME_BYTES + more)
        os.utime(tmp_path / key, (second, second))
    put(cache, "f", SAME_BYTES + 2)
    assert len(list(tmp_path.iterdir())) == 6
    put(cache, "g", SAME_BYTES + 3)  # without "a" as much is in use as before
    assert {path.name for path in tmp_path.iterdir()} == {"c", "d", "e", "f", "g"}


def test_the_longest_unused_make_room(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path, 10_000)
    for second, key in enumerate("abc"):
        put(cache, key, 2_900)
        os.utime(tmp_path / key, (second, second))
    assert cache.get("a")
    put(cache, "d", 2_900)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "c", "d"}


def test_the_bound_holds_and_the_whole_cache_is_seldom_looked_at(tmp_path: Path) -> None:
    cache, held = PieceCache(tmp_path, 1_000_000), [0]
    for number in range(200):
        put(cache, f"{number:03d}", 10_000)
        held.append(sum(file.stat().st_size for file in tmp_path.rglob("code")))
    assert max(held) <= 1_000_000
    looks = sum(now <= before for before, now in itertools.pairwise(held))
    assert 10 <= looks <= 200 / 5, "each look makes room for several pieces"
