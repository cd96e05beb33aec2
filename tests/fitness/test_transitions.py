"""The fit of border costs."""

import pytest

from collage_evo.fitness.costs.borders import (
    LIKELY_SHARE,
    Sample,
    boundary_bytes,
    fit_border,
    fit_borders,
    largest_parts,
    likely_border,
    most_border,
)
from collage_evo.fitness.costs.model import Border
from collage_evo.patterns.match import Match
from tests.support.spaces import make_graph


def sample(sides: int, nbytes: int, saved: float, joined: float = 1.0) -> Sample:
    return Sample(sides, nbytes, joined + saved, joined)


MOST, LIKELY = Border(0.03, 0.5), Border(0.015, 0.25)


def test_a_linear_border_is_found_again() -> None:
    sizes = [(2, 10_000), (2, 400_000), (4, 3_000_000)]
    samples = [sample(sides, nbytes, sides * 0.01 + 0.2 * nbytes / 1e6, joined=0.01) for sides, nbytes in sizes]
    border = fit_border(samples, MOST, LIKELY)
    assert border.fixed_ms == pytest.approx(0.01, rel=1e-2)
    assert border.ms_per_mb == pytest.approx(0.2, rel=1e-2)


def test_one_disturbed_time_changes_little() -> None:
    good = [sample(2, size, 0.02 + 0.1 * size / 1e6) for size in range(100_000, 2_000_000, 100_000)]
    border = fit_border([*good, sample(2, 1_000_000, 3.0)], MOST, LIKELY)
    assert border.ms_per_mb == pytest.approx(0.1, rel=0.15)


def test_noise_never_makes_a_border_pay() -> None:
    border = fit_border([sample(2, 1_000_000, -0.3), sample(2, 2_000_000, -0.1)], MOST, LIKELY)
    assert 0 <= border.fixed_ms <= LIKELY.fixed_ms
    assert 0 <= border.ms_per_mb < 0.1 * MOST.ms_per_mb


def test_where_samples_tell_nothing_a_border_costs_what_is_likely_and_not_nothing() -> None:
    large = [sample(2, 1_000, saved, joined=1_000.0) for saved in (-5.0, 0.0, 5.0)]
    for samples in ([], large):
        border = fit_border(samples, MOST, LIKELY)
        assert (border.fixed_ms, border.ms_per_mb) == pytest.approx((LIKELY.fixed_ms, LIKELY.ms_per_mb), rel=1e-2)


def test_no_border_costs_more_than_a_match_that_has_it_takes() -> None:
    graph = make_graph([[], [0], [1]])
    most = most_border(graph, {0b001: 5.0, 0b010: 0.02})
    assert most.fixed_ms == pytest.approx(0.95 * 0.02 / 2)
    wrong = [sample(2, size, 1.0) for size in (1_000, 2_000, 4_000)]
    assert fit_border(wrong, Border(1.0, 1.0), LIKELY).fixed_ms > most.fixed_ms
    assert fit_border(wrong, most, LIKELY).fixed_ms <= most.fixed_ms
    assert fit_border(wrong, Border(0.1, 0.2), LIKELY).ms_per_mb <= 0.2


def test_an_engine_without_samples_is_no_better_than_those_that_have_some() -> None:
    graph = make_graph([[], [0], [1]])
    matches = [Match(1, "measured"), Match(2, "measured"), Match(4, "unknown")]
    borders = fit_borders(graph, matches, {0: 0.05, 1: 0.02}, {})
    assert borders["unknown", "default"] == borders["measured", "default"]
    assert borders["measured", "default"].fixed_ms > 0


def test_a_border_is_likely_to_cost_no_more_than_to_move_its_tensor() -> None:
    graph = make_graph([[], [0], [1]])
    slow, quick = {0b001: 5.0}, {0b001: 5.0, 0b010: 0.02}
    nbytes = boundary_bytes(graph, 0b010)
    assert likely_border(graph, [slow, quick], [most_border(graph, own) for own in (slow, quick)]) == likely_border(
        graph, [quick], [most_border(graph, quick)]
    )
    likely = likely_border(graph, [quick], [most_border(graph, quick)])
    assert 0 < likely.ms_per_mb * nbytes / 1e6 <= LIKELY_SHARE * 0.02


def test_a_region_is_made_of_its_largest_disjoint_parts_or_of_none() -> None:
    assert largest_parts(0b111, [0b001, 0b010, 0b100, 0b110]) == [0b110, 0b001]
    assert largest_parts(0b111, [0b001, 0b010]) is None
