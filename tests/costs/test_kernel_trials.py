"""Trials go where a backend can win, within a budget that earlier runs count against."""

from __future__ import annotations

from pathlib import Path

from collage_evo.backends.tuning import Kernel
from collage_evo.costs.kernel_trials import ROUND, Known, Structure, spend, structures
from collage_evo.costs.kernel_tuning import read_known, write_known
from collage_evo.costs.matches import CostTable
from collage_evo.patterns.match import Match
from tests.support.spaces import products


class Bench:
    """Every round adds its trials to the structure's one kernel, up to ``most``."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.rounds: list[str] = []
        self.record: dict[str, int] = {}

    def tune(self, structure: Structure, trials: int) -> tuple[str, ...]:
        self.rounds.append(structure.key)
        kernel = f"kernel of {structure.key}"
        self.record[kernel] = min(self.record.get(kernel, 0) + trials, self.most)
        return (kernel,)

    def on_record(self) -> dict[str, Kernel]:
        return {key: Kernel(trials, 1.0, 1.0) for key, trials in self.record.items()}


def structure(key: str, places: int, untuned: float, other: float, bound: float) -> Structure:
    return Structure(key, 1, [1] * places, untuned, other, bound)


def test_rounds_follow_weight_times_gap() -> None:
    bench = Bench()
    found = [structure("rare", 1, 9.0, 2.0, 1.0), structure("often", 3, 9.0, 2.0, 1.0), structure("none", 9, 9, 1, 1)]
    spent = spend(found, 4 * ROUND, bench.tune, bench.on_record, {})
    assert bench.rounds == ["often", "often", "rare", "often"]
    assert (spent.trials, spent.new) == (4 * ROUND, 4 * ROUND)


def test_where_there_is_a_device_matches_there_are_tuned_against_its_own_bound() -> None:
    graph = products([8, 16, 32])
    host, device = "default", "there"
    matches = [Match(1 << node, "b", variant) for variant in (host, device) for node in range(2)]
    table = CostTable((5.0, 5.0, 0.1, 0.2), {})
    alone = structures(graph, matches[:2], CostTable((5.0, 5.0), {}), "b")
    found = structures(graph, matches, table, "b", {("b", device)})
    assert [one.untuned_ms for one in found] == [0.1, 0.2]
    assert all(one.bound_ms <= one.untuned_ms for one in found)
    assert [one.untuned_ms for one in alone] == [5.0, 5.0]
    assert min(one.bound_ms for one in alone) > max(one.bound_ms for one in found)


def test_earlier_trials_count_and_a_second_run_tunes_nothing() -> None:
    bench = Bench()
    first = spend([structure("a", 1, 2.0, 2.0, 1.0)], 20, bench.tune, bench.on_record, {})
    again = spend([structure("a", 1, 2.0, 2.0, 1.0)], 20, bench.tune, bench.on_record, first.known)
    assert (first.new, again.new, again.trials, len(bench.rounds)) == (20, 0, 20, 2)
    more = spend([structure("a", 1, 2.0, 2.0, 1.0)], 25, bench.tune, bench.on_record, again.known)
    assert (more.new, more.trials) == (5, 25)


def test_a_structure_with_nothing_left_is_not_asked_again() -> None:
    bench = Bench(most=10)
    first = spend([structure("a", 1, 2.0, 2.0, 1.0)], 100, bench.tune, bench.on_record, {})
    assert first.known == {"a": Known(("kernel of a",), finished=True)}
    asked = len(bench.rounds)
    spend([structure("a", 1, 2.0, 2.0, 1.0)], 100, bench.tune, bench.on_record, first.known)
    assert len(bench.rounds) == asked


def test_a_failed_round_ends_its_structure_only() -> None:
    bench = Bench()

    def tune(one: Structure, trials: int) -> tuple[str, ...] | None:
        return None if one.key == "bad" else bench.tune(one, trials)

    spent = spend(
        [structure("bad", 9, 9.0, 9.0, 1.0), structure("good", 1, 2.0, 2.0, 1.0)], 32, tune, bench.on_record, {}
    )
    assert spent.new == 32
    assert set(spent.known) == {"good"}


def test_what_is_known_of_a_structure_is_kept_beside_the_records(tmp_path: Path) -> None:
    known = {"a": Known(("one", "two")), "b": Known((), finished=True)}
    write_known(tmp_path, known)
    found = [structure(key, 1, 2.0, 2.0, 1.0) for key in ("a", "b", "c")]
    assert read_known(tmp_path, found) == known
    write_known(tmp_path, {"a": Known(("one",), finished=True)})
    assert read_known(tmp_path, found) == known | {"a": Known(("one",), finished=True)}
