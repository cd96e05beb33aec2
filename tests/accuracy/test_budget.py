"""A budget is a largest error, a largest drop of a metric, a share of the metric, or exact."""

from __future__ import annotations

import pytest

from collage_evo.accuracy.budget import Budget, budget_option
from collage_evo.config import load_config
from collage_evo.errors import ConfigError


def budget(text: str) -> Budget:
    return Budget.read(load_config("builtin:bert", (f"accuracy.budget={text}",)).accuracy.budget)


@pytest.mark.parametrize(
    ("text", "score", "largest"),
    [
        ("0.01", None, 0.01),
        ("0.01", 80.0, 0.01),  # a drop in the metric's own units
        ("1%", 80.0, 0.8),  # a share of what the model reaches
        ("1%", None, 0.01),  # a relative error is a share already
        ("40dB", None, 0.01),  # noise in shares of the signal
        ("exact", None, 0.0),
    ],
)
def test_a_budget_is_an_error_a_drop_a_share_decibels_or_exact(
    text: str, score: float | None, largest: float
) -> None:
    assert budget(text).largest(score) == pytest.approx(largest)
    assert budget(text).exact == (text == "exact")


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
