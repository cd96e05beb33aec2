"""Help texts: each command has one whole line in the list, options stand in groups, values go by words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from collage_evo.cli import app
from collage_evo.cli.app import MOST_TOGETHER
from collage_evo.config import AccuracyConfig, TargetConfig
from tests.cli.commands import Here

COMMANDS = typer.main.get_group(app).commands


def helped(*args: str) -> str:
    return CliRunner().invoke(app, args, env={"COLUMNS": "80"}).output


def test_the_list_of_commands_begins_with_run_and_cuts_no_line() -> None:
    listed = helped("--help").partition("Commands:\n")[2]
    assert re.findall(r"^  (\w+) ", listed, re.MULTILINE)[:4] == ["run", "resume", "show", "pick"]
    assert "..." not in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_each_value_goes_by_a_word_and_no_type_of_python(name: str) -> None:
    text = helped(name, "-h")
    assert text == helped(name, "--help")
    assert set(re.findall(r"<(\S+)>", text)) <= {"quick|normal|thorough", "exact|mixed", "plain|onnxruntime"}
    assert not re.search(r"^  -\S+(, --\S+)? [A-Z]\b", text, re.MULTILINE), "a letter in place of a word"


@pytest.mark.parametrize("name", COMMANDS)
def test_many_options_are_in_groups_and_few_together(name: str) -> None:
    groups = set(re.findall(r"^(\w[\w ]*):$", helped(name, "-h"), re.MULTILINE)) - {"Arguments"}
    assert (len(groups) > 1) == (len(COMMANDS[name].params) >= MOST_TOGETHER)  # the option for help is another one


def test_a_run_has_groups_in_the_order_of_their_use_and_its_defaults() -> None:
    text = helped("run", "-h")
    groups = ["Arguments", "Model and data", "Accuracy", "Time", "Processor", "Output", "Expert"]
    assert re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE) == groups
    words = " ".join(text.split())
    assert f"Largest error of the answer: {AccuracyConfig().budget}, the default" in words
    assert f"(default: {TargetConfig().threads})" in words


def test_a_shell_completes_commands_and_options_of_the_script(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_COLLAGE_EVO_COMPLETE", "complete_bash")
    for words, expected in {"collage-evo ru": "run", "collage-evo run a.onnx --eff": "--effort"}.items():
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        done = here(cwd=tmp_path)
        assert (done.returncode, done.stdout.split()) == (0, [expected])
