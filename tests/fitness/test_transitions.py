"""The fit of border costs."""

import pytest

from collage_evo.fitness.transitions import Sample, fit_border


def test_a_linear_border_is_found_again() -> None:
    sizes = [(2, 10_000), (2, 400_000), (4, 3_000_000)]
    border = fit_border([Sample(sides, nbytes, sides * 0.01 + 0.2 * nbytes / 1e6) for sides, nbytes in sizes])
    assert border.fixed_ms == pytest.approx(0.01)
    assert border.ms_per_mb == pytest.approx(0.2)


def test_noise_never_makes_a_border_pay() -> None:
    border = fit_border([Sample(2, 1_000_000, -0.3), Sample(2, 2_000_000, -0.1)])
    assert border.fixed_ms == 0
    assert border.ms_per_mb == 0
