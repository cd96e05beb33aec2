"""The fit of border costs."""

import pytest

from collage_evo.fitness.costs.borders import Sample, fit_border, fit_borders, largest_parts, most_border
from collage_evo.fitness.costs.model import Border
from collage_evo.patterns.match import Match
from tests.support.spaces import make_graph


def sample(sides: int, nbytes: int, saved: float, joined: float = 1.0) -> Sample:
    return Sample(sides, nbytes, joined + saved, joined)


def test_a_linear_border_is_found_again() -> None:
    sizes = [(2, 10_000), (2, 400_000), (4, 3_000_000)]
    border = fit_border([sample(sides, nbytes, sides * 0.01 + 0.2 * nbytes / 1e6) for sides, nbytes in sizes])
    assert border.fixed_ms == pytest.approx(0.01, rel=1e-3)
    assert border.ms_per_mb == pytest.approx(0.2, rel=1e-3)


def test_one_disturbed_time_changes_little() -> None:
    good = [sample(2, size, 0.02 + 0.1 * size / 1e6) for size in range(100_000, 2_000_000, 100_000)]
    border = fit_border([*good, sample(2, 1_000_000, 3.0)])
    assert border.ms_per_mb == pytest.approx(0.1, rel=0.15)


def test_noise_never_makes_a_border_pay() -> None:
    border = fit_border([sample(2, 1_000_000, -0.3), sample(2, 2_000_000, -0.1)])
    assert border.fixed_ms == pytest.approx(0, abs=1e-6)
    assert border.ms_per_mb == pytest.approx(0, abs=1e-6)


def test_no_border_costs_more_than_a_match_that_has_it_takes() -> None:
    graph = make_graph([[], [0], [1]])
    most = most_border(graph, {0b001: 5.0, 0b010: 0.02})
    assert most.fixed_ms == pytest.approx(0.95 * 0.02 / 2)
    wrong = [sample(2, size, 1.0) for size in (1_000, 2_000, 4_000)]
    assert fit_border(wrong).fixed_ms > most.fixed_ms
    assert fit_border(wrong, most).fixed_ms <= most.fixed_ms
    assert fit_border(wrong, Border(0.1, 0.2)).ms_per_mb <= 0.2


def test_where_no_engine_could_be_probed_borders_are_not_free() -> None:
    """Else a cover of many small pieces looks cheap."""
    graph = make_graph([[], [0], [1]])
    (border,) = fit_borders(graph, [Match(1, "a")], {0: 2.0}, {}).values()
    assert border.fixed_ms > 0
    assert border.ms_per_mb > 0


def test_an_engine_that_was_not_probed_has_the_worst_border_of_its_own_device() -> None:
    graph = make_graph([[i - 1] if i else [] for i in range(5)])
    host, there = ("a", "default"), {("b", "default"), ("c", "default")}
    matches = [Match(1 << node, backend) for backend in "abcd" for node in range(5)]
    saved = {"a": 0.5, "b": 0.01}

    def joined(backend: str) -> dict[Match, float]:
        pairs = (Match(0b11 << node, backend) for node in range(4))
        return {pair: 4.0 - 2 * saved[backend] for pair in pairs}

    found = fit_borders(graph, matches, dict.fromkeys(range(20), 2.0), joined("a") | joined("b"), there)
    assert found["c", "default"] == found["b", "default"]
    assert found["d", "default"] == found[host]
    assert found[host].fixed_ms > 2 * found["b", "default"].fixed_ms


def test_a_region_is_made_of_its_largest_disjoint_parts_or_of_none() -> None:
    assert largest_parts(0b111, [0b001, 0b010, 0b100, 0b110]) == [0b110, 0b001]
    assert largest_parts(0b111, [0b001, 0b010]) is None
