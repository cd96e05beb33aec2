"""The word for how long a run may take: values for keys that nobody gave, kept with the run."""

from pathlib import Path
from typing import Any

import pytest

from collage_evo.commands.sweep import run_sweep
from collage_evo.config import Config, load_config, parse_config
from collage_evo.effort import EFFORTS, TIMED
from collage_evo.errors import ConfigError


def value_of(config: Config, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("word", EFFORTS)
def test_each_word_stands_for_values_of_keys_that_there_are(word: str) -> None:
    config = load_config("builtin:bert", (f"effort={word}",))
    assert {key: value_of(config, key) for key in EFFORTS[word]} == dict(EFFORTS[word])


def test_quick_asks_for_no_more_than_usual_and_thorough_for_no_less() -> None:
    usual = load_config("builtin:bert")
    for word, sign in (("quick", -1), ("thorough", 1)):
        for key, value in EFFORTS[word].items():
            before = value_of(usual, key)
            if isinstance(value, float | int) and before is not None:
                assert sign * (value - before) >= 0, key


def test_what_a_person_gives_comes_before_what_the_word_says() -> None:
    config = parse_config({"model": {"source": "a.onnx"}, "effort": "quick"}, ("search.seconds=77",), "here")
    assert config.search.seconds == 77
    assert config.costs.seconds == EFFORTS["quick"]["costs.seconds"]
    in_file = {"model": {"source": "a.onnx"}, "costs": {"seconds": 9}, "effort": "thorough"}
    assert parse_config(in_file, ("effort=quick",), "here").costs.seconds == 9


@pytest.mark.parametrize(("seconds", "effort"), [(30, "quick"), (60, "normal")])
def test_stages_have_shares_of_a_run_s_time_and_never_more_than_usual(seconds: float, effort: str) -> None:
    config = load_config("builtin:bert", (f"time={seconds}",))
    assert config.effort == effort
    assert sum(value_of(config, key) for key in TIMED) < seconds / 2
    for word in ("quick", "thorough"):
        timed, usual = (load_config("builtin:bert", (f"effort={word}", *more)) for more in (["time=99999"], []))
        assert timed.untimed() == usual
    assert load_config("builtin:bert", ("time=30", "effort=thorough")).effort == "thorough"
    assert load_config("builtin:bert", ("time=30", "final.seconds=25")).final.seconds == 25


def test_another_word_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"effort: .*'quick', 'normal' or 'thorough' \(given: 'fast'\)"):
        load_config("builtin:bert", ("effort=fast",))


def test_a_sweep_over_the_word_would_change_nothing_and_says_so(tmp_path: Path) -> None:
    space = {"effort": {"choices": ["quick", "thorough"]}}
    config = parse_config({"model": {"source": "a.onnx"}, "sweep": {"space": space}}, (), "here")
    with pytest.raises(ConfigError, match="name those keys"):
        run_sweep(config, tmp_path, reporter=None)  # type: ignore[arg-type]  # it is refused before anything is told
