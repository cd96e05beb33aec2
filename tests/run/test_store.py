"""What a stage makes is kept as a typed record, once, and whatever is wrong with it is one line."""

from __future__ import annotations

from pathlib import Path

from collage_evo.backends.enumerate import Matches, Rejection
from collage_evo.files import Stored
from collage_evo.genome.failure import Failure, Fault
from collage_evo.patterns.match import Match
from collage_evo.run.stages.matches import MATCHES, Enumerated
from collage_evo.run.store import Store


def test_matches_of_a_graph_of_any_size_come_back(tmp_path: Path) -> None:
    far = 1 << 20_000  # has more digits than Python reads of a decimal number
    matches = (Match(far, "b"), Match(3, "b", "fast~r", (("int8", 1), ("r", far)), "p", "fast"))
    found = Matches(matches, {7: {"b": "no"}}, ("b",), (Rejection(far, "b", "p", "too far"),))
    slow = Failure(Fault.NEEDLESS, "takes twice as long", rule="slow_engine")
    kept = Enumerated("digest", found, ((("b", "slow"), slow),))
    Store(tmp_path).put(MATCHES, kept)
    back = Store(tmp_path).get(MATCHES)
    assert back == kept
    assert [(match.pattern, match.rewrites) for match in back.found.matches] == [("", ()), ("p", (("r", far),))]


def test_a_stage_makes_its_record_once(tmp_path: Path) -> None:
    made: list[float] = []

    def make() -> float:
        made.append(1.5)
        return 1.5

    store, seconds = Store(tmp_path), Stored("work/seconds.json", float)
    assert [store.once(seconds, make) for _ in range(3)] == [1.5, 1.5, 1.5]
    assert made == [1.5]
