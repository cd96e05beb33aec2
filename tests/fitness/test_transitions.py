"""The fit of border costs."""

import pytest

from collage_evo.fitness.transitions import fit_border


def test_a_linear_border_is_found_again() -> None:
    border = fit_border([(nbytes, 2 * (0.01 + 0.2 * nbytes / 1e6)) for nbytes in (10_000, 400_000, 3_000_000)])
    assert border.fixed_ms == pytest.approx(0.01)
    assert border.ms_per_mb == pytest.approx(0.2)


def test_noise_never_makes_a_border_pay() -> None:
    border = fit_border([(1_000_000, -0.3), (2_000_000, -0.1)])
    assert border.fixed_ms == 0
    assert border.ms_per_mb == 0
