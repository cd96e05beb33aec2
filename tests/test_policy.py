"""The policy: every value is explained and used, set like other keys, kept with a run, and decides where it says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.answer import racing_baselines
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.sequential import Stopping
from collage_evo.codec import from_json, to_json
from collage_evo.config import Config, dump_config, load_config, parse_config
from collage_evo.errors import ConfigError
from collage_evo.fitness.jobs import Setting
from collage_evo.genome.outcome import Outcome
from collage_evo.hardware.target import Target
from collage_evo.policy import Policy
from collage_evo.run.directory import enlarge_budget, reopen_run, start_run

ROOT = Path(__file__).parents[1]
FIELDS = {one.name: one for one in fields(Policy)}


def configured(*overrides: str) -> Config:
    return load_config("builtin:bert", overrides)


def test_each_value_says_what_it_decides_and_by_what_its_default_was_found_and_the_reference_has_its_row() -> None:
    for name, one in FIELDS.items():
        assert re.fullmatch(r"[A-Z].*\. (Chosen|Measured|Seen|By sum)\b.*\.", one.metadata["description"]), name
        assert one.metadata["ge"] <= one.default <= one.metadata["le"], name
        assert isinstance(one.default, {"int": int, "float": float}[one.type]), name
    rows = [f"| `policy.{n}` | {one.default:g} | {one.metadata['description']} |\n" for n, one in FIELDS.items()]
    table = "".join(rows)
    assert table in (ROOT / "docs/reference/configuration.md").read_text(), f"put this table into that file:\n{table}"


def test_values_are_set_on_the_command_line_and_in_yaml_as_other_keys_are() -> None:
    by_line = configured("policy.race_level=0.9", "policy.cuts=8").policy
    data = {"model": {"source": "builtin:bert"}, "policy": {"race_level": 0.9, "cuts": 8}}
    assert by_line == parse_config(data, (), "here").policy
    assert by_line.unusual == {"race_level": 0.9, "cuts": 8}
    assert by_line.text == "cuts=8, race_level=0.9"
    assert (configured().policy.text, configured().policy.unusual) == ("", {})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.race_levle=0.9", r"unknown key policy\.race_levle; did you mean policy\.race_level\?"),
        ("policy.race_level=1.0", r"policy\.race_level: .*0\.999"),
        ("policy.cuts=often", r"policy\.cuts: .*integer"),
        ("policy.race_near=.nan", r"policy\.race_near"),
        ("policy.learned_rows=100", r"unknown key policy\.learned_rows"),
    ],
)
def test_a_value_that_is_none_is_refused_in_one_line(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        configured(override)
    assert "\n" not in str(refused.value)


def test_a_run_keeps_what_is_not_the_default_and_goes_on_with_it(tmp_path: Path) -> None:
    usual, other = configured(), configured("policy.race_level=0.9")
    for name, config, kept in (("usual", usual, None), ("other", other, {"race_level": 0.9})):
        start_run(tmp_path / name, config)
        assert yaml.safe_load((tmp_path / name / "config.yaml").read_text()).get("policy") == kept
        assert reopen_run(tmp_path / name) == config
    with pytest.raises(ConfigError, match=r"policy\.race_level: a resumed run may only"):
        enlarge_budget(tmp_path / "other", reopen_run(tmp_path / "other"), ["policy.race_level=0.95"])
    assert yaml.safe_load(dump_config(usual))["policy"] == {name: one.default for name, one in FIELDS.items()}


def test_measuring_processes_hear_of_it() -> None:
    given = configured("policy.race_share_ms=20", "policy.single_give_up=2").policy
    setting = Setting("work", "cache", 1, Target(), Limits(1e-3), policy=given)
    assert from_json(to_json(setting), Setting).policy == Policy(race_share_ms=20.0, single_give_up=2.0)


def test_a_race_is_decided_as_surely_as_it_says() -> None:
    logs = [0.01, 0.03, 0.0, 0.02, 0.03, -0.005]
    sure, unsure = (Stopping(policy=Policy(race_level=level)) for level in (0.999, 0.5))
    assert (sure.won(logs), unsure.won(logs)) == (False, True)
    assert Stopping(policy=Policy(race_worth=0.1)).given_up(logs)
    assert not Stopping().given_up(logs)


def test_libraries_race_that_are_as_near_as_it_says() -> None:
    found = [Baseline(name, name, "default", Path(name), Outcome(ms, n=9)) for name, ms in (("a", 1.0), ("b", 1.4))]
    assert set(racing_baselines(found)) == {"a"}
    assert set(racing_baselines(found, policy=Policy(race_near=1.5))) == {"a", "b"}
