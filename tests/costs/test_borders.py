"""The fit of border costs to placements that were measured whole."""

import pytest

from collage_evo.costs.borders import LEAST_SHARE, BorderSample, WholeModel, border_ms, fit_borders, inner_ms
from collage_evo.genome.cost_model import Border, Engine
from collage_evo.policy import DEFAULT_POLICY
from tests.support.spaces import make_graph

A, B = ("a", "default"), ("b", "default")
USUAL = Border(DEFAULT_POLICY.border_ms, DEFAULT_POLICY.border_ms_per_mb)
SIZES = (10_000, 400_000, 3_000_000, 1_000_000)


def row(
    sizes: tuple[int, ...], border: Border, inner: float = 1.0, both: tuple[Engine, ...] = (A, B)
) -> BorderSample:
    """A placement that hands on tensors of these sizes."""
    count, nbytes = float(len(sizes)), float(sum(sizes))
    return BorderSample(inner + 2 * sum(map(border.ms, sizes)), inner, dict.fromkeys(both, (count, nbytes)))


def rows(border: Border) -> list[BorderSample]:
    return [row(SIZES[: 1 + count % 4] * (1 + count // 4), border) for count in range(12)]


def test_a_linear_border_is_found_again() -> None:
    for border in fit_borders(rows(Border(0.05, 0.3)), [A, B]).values():
        assert border.fixed_ms == pytest.approx(0.05, rel=0.25)
        assert border.ms_per_mb == pytest.approx(0.3, rel=0.1)


def test_one_time_that_is_far_off_changes_little() -> None:
    given = rows(Border(0.02, 0.2))
    wrong = BorderSample(30.0, 1.0, {A: (1.0, 1e6), B: (1.0, 1e6)})
    good, bad = (fit_borders(some, [A, B])[A] for some in (given, [*given, wrong]))
    assert bad.ms_per_mb == pytest.approx(good.ms_per_mb, rel=0.3)


def test_noise_never_makes_a_border_pay() -> None:
    fitted = fit_borders([row(SIZES, Border(-0.05, -0.1), inner=5.0)] * 9, [A, B])
    assert all(border.fixed_ms >= 0 and border.ms_per_mb >= 0 for border in fitted.values())


def test_where_nothing_was_measured_borders_are_the_usual_ones_and_not_free() -> None:
    """Else a cover of many small pieces looks cheap."""
    fitted = fit_borders([], [A])
    assert fitted[A].fixed_ms == pytest.approx(USUAL.fixed_ms)
    assert fitted[A].ms_per_mb == pytest.approx(USUAL.ms_per_mb)
    assert USUAL.fixed_ms > 0


def test_a_family_that_was_not_measured_is_no_better_than_the_worst_that_was() -> None:
    other = ("c", "default")
    fitted = fit_borders(rows(Border(0.05, 0.3)), [A, B, other])
    assert fitted[other].fixed_ms == max(fitted[A].fixed_ms, fitted[B].fixed_ms)
    assert fitted[other].ms_per_mb == max(fitted[A].ms_per_mb, fitted[B].ms_per_mb)


def test_what_an_engine_costs_inside_its_family_is_found_beside_the_familys_border() -> None:
    inner = ("a", "int8")
    given = [*rows(Border(0.02, 0.1))]
    given += [BorderSample(2.0 + 0.05 * n + 0.3 * n, 2.0, {inner: (float(n), n * 1e6)}) for n in range(1, 9)]
    fitted = fit_borders(given, [A, B], [A, B, inner])
    assert fitted[inner].ms(1_000_000) == pytest.approx(0.35, rel=0.1)
    assert fitted[A].ms_per_mb == pytest.approx(0.1, rel=0.3)


def test_of_a_whole_model_what_borders_take_is_not_its_kernels() -> None:
    whole = WholeModel(2.0, {A: (2.0, 1e6)})
    assert whole.share({A: Border(0.1, 0.2)}) == pytest.approx(0.8)
    assert whole.share({A: Border(9.0, 0.2)}) == LEAST_SHARE


def test_that_everything_became_slower_meanwhile_is_no_price_of_borders() -> None:
    border = Border(0.02, 0.1)
    slower = [BorderSample(1.1 * one.measured_ms, one.inner_ms, one.sides) for one in rows(border)]
    alone = [BorderSample(1.1, 1.0, {})] * 6
    fitted = fit_borders([*slower, *alone], [A, B])[A]
    assert fitted.ms_per_mb == pytest.approx(border.ms_per_mb, rel=0.4)


def test_a_region_keeps_a_share_of_what_it_takes_alone() -> None:
    graph = make_graph([[], [0], [1]])
    border = Border(0.1, 0.0)
    assert border_ms(graph, 0b001, border) == pytest.approx(0.2)
    assert inner_ms(graph, 0b001, 2.0, border) == pytest.approx(1.8)
    assert inner_ms(graph, 0b001, 0.1, border) == pytest.approx(LEAST_SHARE * 0.1)
