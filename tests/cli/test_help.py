"""Help texts: each command has one whole line in the list, in the order of their use."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from collage_evo.cli import app


def test_the_list_of_commands_begins_with_run_and_cuts_no_line() -> None:
    listed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output.partition("Commands:\n")[2]
    assert re.findall(r"^  (\w+) ", listed, re.MULTILINE)[:4] == ["run", "resume", "show", "pick"]
    assert "..." not in listed
