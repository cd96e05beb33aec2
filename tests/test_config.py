"""The configuration: shapes of profiles, and one clear line for what is not allowed."""

import re
from pathlib import Path

import pytest

from collage_evo.config import Config, load_config, parse_config
from collage_evo.errors import ConfigError, InputError


def shaped(shapes: object) -> Config:
    return parse_config({"model": {"source": "x.onnx", "shapes": shapes}}, (), "here")


def test_the_kth_shapes_of_all_inputs_are_a_profile() -> None:
    assert shaped({"x": [[1, 3], [8, 3]], "mask": [[1], [8]], "k": [2], "scalar": []}).model.profiles == (
        {"x": [1, 3], "mask": [1], "k": [2], "scalar": []},
        {"x": [8, 3], "mask": [8], "k": [2], "scalar": []},
    )
    assert shaped({"x": [1, 3]}).model.profiles == ({"x": [1, 3]},)
    assert shaped({"x": [[1, 3]]}).model.one_profile() == {"x": [1, 3]}
    assert shaped({}).model.profiles == ({},)


def test_profiles_survive_being_saved() -> None:
    config = shaped({"x": [[1, 3], [8, 3]]})
    assert parse_config(config.model_dump(mode="json"), (), "saved") == config


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": [1, -3]}, r"model\.shapes: x is \[1, -3\]: give sizes"),
        ({"x": [[1, 3], [1, "n"]]}, r"x is \[1, 'n'\]"),
        ({"x": [1, [3]]}, r"x is \[1, \[3\]\]"),
        ({"x": 3}, "x is 3"),
        ({"x": [True]}, "x is"),
        ({"x": [10**19]}, r"x is \[10000000000000000000\]: give sizes"),
        ("smallest", "a shape for each input"),
        ({"x": [[1], [2]], "y": [[1], [2], [3]]}, "x has 2, y has 3: give as many for each, or one"),
    ],
)
def test_shapes_that_are_none_are_named(shapes: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        shaped(shapes)
    assert "\n" not in str(refused.value)


def test_ranges_are_kept_as_written_and_are_no_profiles() -> None:
    for shapes in ({"sequence": "1..512", "batch": 1}, {"ids": ["1..8", "1..512"]}):
        config = shaped(shapes)
        assert config.model.shapes == shapes
        assert parse_config(config.model_dump(mode="json"), (), "saved") == config
        with pytest.raises(
            ConfigError, match=r"has ranges \((sequence|ids): .*1\.\.512.*\), which only run takes: give"
        ):
            config.model.one_profile()


def test_what_takes_one_profile_says_so() -> None:
    with pytest.raises(ConfigError, match="2 profiles; only run takes several"):
        shaped({"x": [[1], [2]]}).model.one_profile()


def test_overrides_as_text_and_as_values_are_the_same_and_leave_what_they_override() -> None:
    data = {"model": {"source": "x.onnx"}, "search": {"seconds": 7}}
    text = parse_config(data, ("search.seconds=9", "target.threads=2"), "here")
    assert text == parse_config(data, {"search.seconds": 9, "target.threads": 2}, "here")
    assert data["search"] == {"seconds": 7}
    assert load_config("builtin:bert", ("data.source=a.npz",)).data.source == "a.npz"


def test_a_core_that_is_named_twice_is_refused_before_it_waits_for_itself() -> None:
    with pytest.raises(ConfigError, match=r"target\.cores: \[0, 0\] names a core more than once"):
        load_config("builtin:bert", ("target.cores=[0,0]",))


@pytest.mark.parametrize(
    "text",
    [
        "model:\n  source: a.onnx\n  source: b.onnx\n",
        "model: {source: a.onnx}\nsearch: {}\n'model': {source: b.onnx}\n",
    ],
)
def test_a_key_that_is_given_twice_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"twice\.yaml: line 3: the key '(source|model)' is given a second time"):
        load_config(str(path))
    with pytest.raises(ConfigError, match=r"-s target=.*: line 1: the key 'threads' is given a second time"):
        load_config("builtin:bert", ("target={threads: 1, threads: 2}",))


def test_a_key_that_overrides_what_was_merged_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("target: {threads: 2}\nmodel:\n  <<: {source: a.onnx, seed: 1}\n  seed: 2\n")
    assert load_config(str(path)).model.seed == 2


@pytest.mark.parametrize(
    "text", ['{"a":' * 5000, "a: !!int x", "a: !!timestamp x", "a: 2024-13-41", "a: " + "9" * 5000]
)
def test_yaml_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match=r"c\.yaml is neither YAML nor named \.onnx"):
        load_config(str(tmp_path / "c.yaml"))
    with pytest.raises(ConfigError, match="the value is not YAML"):
        load_config("builtin:bert", (f"data.source={text}",))


@pytest.mark.parametrize("budget", [2, "200%", 1.5])
def test_a_budget_of_more_than_everything_is_taken_for_a_slip(budget: float | str) -> None:
    given = {"model": {"source": "builtin:squeezenet"}, "accuracy": {"budget": budget}}
    with pytest.raises(ConfigError, match=r"2 % is 0\.02, or 2%"):
        parse_config(given, (), "test")
    given["accuracy"]["metric"] = "psnr"  # whose drop may be of any size
    parse_config(given, (), "test")


def test_a_model_of_another_kind_is_told_how_it_becomes_an_onnx_file(tmp_path: Path) -> None:
    (tmp_path / "net.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=r"net\.pt is no ONNX file: write one with torch\.onnx\.export"):
        load_config(str(tmp_path / "net.pt"))


BOMB = "a0: &a0 [1]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 40))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model: &m\n  source: builtin:squeezenet\n  shapes: *m\n", "line 1: a value that contains itself"),
        ("sweep: {space: &s [*s]}\n", "line 1: a value that contains itself"),
        (BOMB, "more than 100,000 values, by aliases of aliases"),
        ('output: {dir: "a\\0b"}\n', "line 1: a value with a NUL character"),
        ("model: {source: builtin:squeezenet}\ntarget: {device: gpu}\n", "no plug-in serves gpu: take cpu or cuda"),
    ],
)
def test_values_that_no_configuration_has_are_refused_in_a_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(why)) as raised:
        load_config(str(tmp_path / "c.yaml"))
    assert "\n" not in str(raised.value)


def test_aliases_as_people_use_them_are_taken(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model: {source: builtin:bert, shapes: {a: &s [1, 8], b: *s}}\n")
    assert load_config(str(tmp_path / "c.yaml")).model.shapes == {"a": [1, 8], "b": [1, 8]}
