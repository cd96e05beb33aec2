"""What a stage makes is kept as a typed record, once, and whatever is wrong with it is one line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from collage_evo.backends.enumerate import Matches, Rejection
from collage_evo.errors import DamagedFile
from collage_evo.patterns.match import Match
from collage_evo.run.stages.matches import Enumerated
from collage_evo.run.store import Store


@dataclass(frozen=True)
class Record:
    ms: tuple[float, ...]
    names: frozenset[str]
    by_node: dict[int, str]


RECORD = Record((0.1, 1 / 3, math.inf), frozenset({"a", "b"}), {3: "x"})


def test_a_record_comes_back_as_it_was_to_the_bit(tmp_path: Path) -> None:
    store = Store(tmp_path / "work")
    assert store.get("stage", Record) is None
    store.put("stage", Record, RECORD)
    assert store.get("stage", Record) == RECORD


def test_matches_of_a_graph_of_any_size_come_back(tmp_path: Path) -> None:
    far = 1 << 20_000  # has more digits than Python reads of a decimal number
    matches = (Match(far, "b"), Match(3, "b", "fast~r", (("int8", 1), ("r", far)), "p", "fast"))
    found = Matches(matches, {7: {"b": "no"}}, ("b",), (Rejection(far, "b", "p", "too far"),))
    kept = Enumerated("digest", found, ((("b", "slow"), "takes twice as long"),))
    Store(tmp_path).put("matches", Enumerated, kept)
    back = Store(tmp_path).get("matches", Enumerated)
    assert back == kept
    assert [(match.pattern, match.rewrites) for match in back.found.matches] == [("", ()), ("p", (("r", far),))]


def test_a_stage_makes_its_record_once(tmp_path: Path) -> None:
    made: list[float] = []

    def make() -> float:
        made.append(1.5)
        return 1.5

    store = Store(tmp_path)
    assert [store.once("seconds", float, make) for _ in range(3)] == [1.5, 1.5, 1.5]
    assert made == [1.5]


@pytest.mark.parametrize("content", ["", "[]", '{"ms": 3}', "null", '{"ms": [], "names": [1], "by_node": {}}'])
def test_what_is_no_such_record_is_named_with_what_to_do(tmp_path: Path, content: str) -> None:
    store = Store(tmp_path)
    store.path("stage").write_text(content)
    with pytest.raises(DamagedFile, match=r"stage\.json is damaged .*: delete it, and it is made again"):
        store.get("stage", Record)


@pytest.mark.parametrize("nodes", ['"-1"', '"x"', "-1", "1.5"])
def test_what_is_no_set_of_nodes_is_refused(tmp_path: Path, nodes: str) -> None:
    store = Store(tmp_path)
    store.put("matches", Matches, Matches((Match(1, "b"),), {}))
    path = store.path("matches")
    path.write_text(path.read_text().replace('"nodes": "1"', f'"nodes": {nodes}'))
    with pytest.raises(DamagedFile, match=r"matches\.json is damaged"):
        store.get("matches", Matches)
