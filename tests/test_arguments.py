"""What is given in Python is the same keys that a configuration has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage_evo.arguments import base_keys, effort_keys, resolve, shape_keys
from collage_evo.config import load_config
from collage_evo.errors import ConfigError, InputError
from collage_evo.graph.load.functions import load_function


def test_shapes_of_the_python_interface_are_the_same_keys() -> None:
    sizes = {"x": ((1, np.int64(3)), [8, 3]), "k": (2,)}
    assert shape_keys(sizes) == {"model.shapes": {"x": [[1, 3], [8, 3]], "k": [2]}}
    ranges = {"sequence": "1..512", "batch": np.int64(1), "x": (1, "32..640")}
    assert shape_keys(ranges) == {"model.shapes": {"sequence": "1..512", "batch": 1, "x": [1, "32..640"]}}
    assert shape_keys("auto") == {"model.sizes": "smallest"}
    assert shape_keys(None) == {}


def test_keys_may_be_dotted_and_nested_and_are_given_once() -> None:
    given = {"accuracy.metric": "a.py:f", "search": {"seconds": 5}, "search.ga.population": 8}
    assert base_keys(given) == {"accuracy": {"metric": "a.py:f"}, "search": {"seconds": 5, "ga": {"population": 8}}}
    assert given["search"] == {"seconds": 5}, "what was given stays as it is"
    with pytest.raises(ConfigError, match=r"search\.seconds is given a second time"):
        base_keys({"search": {"seconds": 5}, "search.seconds": 6})
    with pytest.raises(ConfigError, match=r"search\.seconds: search holds no keys"):
        base_keys({"search": 5, "search.seconds": 6})


def budget_of(budget: Any, precision: Any, base: Any) -> Any:
    keys = {"model": {"source": "builtin:bert"}, **base}
    return resolve(keys, {}, "test", budget=budget, precision=precision).accuracy.budget


@pytest.mark.parametrize(
    ("budget", "precision", "base", "resolved"),
    [
        (None, None, {}, 0.02),
        (None, "mixed", {"accuracy": {"budget": 0.1}}, 0.1),
        (0.01, "mixed", {"accuracy": {"budget": "exact"}}, 0.01),
        (None, "exact", {"accuracy": {"budget": 0.1}}, "exact"),
        ("exact", "exact", {}, "exact"),
    ],
)
def test_precision_is_another_word_for_a_budget(budget: Any, precision: Any, base: Any, resolved: Any) -> None:
    assert budget_of(budget, precision, base) == resolved


@pytest.mark.parametrize(
    ("budget", "precision", "base", "message"),
    [
        (0.01, "exact", {}, "set only one of the two"),
        ("exact", "mixed", {}, "give another, as 0.02"),
        (None, "mixed", {"accuracy": {"budget": "exact"}}, "give another, as 0.02"),
        (None, "half", {}, "use exact .* or mixed"),
    ],
)
def test_what_contradicts_itself_is_refused(budget: Any, precision: Any, base: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        budget_of(budget, precision, base)


def test_effort_for_a_configuration_that_has_every_key_would_change_nothing_and_says_so() -> None:
    assert effort_keys("quick", {"search.seconds": 5}) == {"effort": "quick"}
    with pytest.raises(InputError, match="a Config has all keys"):
        effort_keys("quick", load_config("builtin:bert"))


def test_a_file_that_searches_while_it_is_imported_for_its_function_is_told(tmp_path: Path) -> None:
    """Else each search would begin another."""
    own = tmp_path / "own.py"
    own.write_text("import collage_evo\ndef samples():\n    yield {}\ncollage_evo.optimize('builtin:bert')\n")
    with pytest.raises(InputError, match=r'own\.py calls optimize .* below if __name__ == "__main__":'):
        load_function(f"{own}:samples")
