"""A budget is a largest error, a largest drop of a metric, a share of the metric, or exact."""

from __future__ import annotations

import pytest

from collage_evo.accuracy.budget import Budget, budget_option
from collage_evo.config import load_config
from collage_evo.errors import ConfigError


def budget(text: str) -> Budget:
    return Budget.read(load_config("builtin:bert", (f"accuracy.budget={text}",)).accuracy.budget)


def test_a_number_is_an_error_and_with_a_metric_a_drop_in_its_own_units() -> None:
    assert budget("0.01").largest() == 0.01
    assert budget("0.01").largest(score=80.0) == 0.01


def test_a_share_is_one_of_what_the_model_reaches() -> None:
    assert budget("1%").largest(score=80.0) == 0.8
    assert budget("1%").largest() == 0.01, "a relative error is a share already"


def test_decibels_are_noise_in_shares_of_the_signal() -> None:
    assert budget("40dB").largest() == pytest.approx(0.01)


def test_exact_leaves_room_for_nothing_else() -> None:
    assert budget("exact").exact
    assert budget("exact").largest() == 0.0


@pytest.mark.parametrize("text", ["0", "-1", "loose", "nan", "'%'", "0dB", "dB"])
def test_what_is_no_budget_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ConfigError, match=r"give a number as 0\.02, a share as 1%, or exact"):
        budget(text)


def test_an_option_that_is_no_budget_is_named() -> None:
    assert (budget_option("1%"), budget_option("0.01")) == ("1%", 0.01)
    with pytest.raises(ConfigError, match="--budget often"):
        budget_option("often")


def test_a_metric_has_a_name_or_is_a_function_of_a_file() -> None:
    for name in ("m.py:f1", "agreement", "top5"):
        assert load_config("builtin:bert", (f"accuracy.metric={name}",)).accuracy.metric == name
    with pytest.raises(ConfigError, match=r"accuracy\.metric: 'f1' is no metric: choose agreement, cosine"):
        load_config("builtin:bert", ("accuracy.metric=f1",))
    with pytest.raises(ConfigError, match=r"accuracy\.over"):
        load_config("builtin:bert", ("accuracy.over=some",))
