"""Files of results: another schema is refused, and the environment of a run is recorded."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import pytest

from collage_evo.errors import InputError
from collage_evo.report.places import COMMAND
from collage_evo.report.result import SCHEMA, environment, read_finished, write_result
from tests.support.results import result


def test_a_result_is_read_again_and_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(path, result())
    assert read_finished(tmp_path)[0].result == result()
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 4'))
    with pytest.raises(InputError, match=f"has schema 4, this version reads {SCHEMA}"):
        read_finished(tmp_path)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/opt/venv/bin/collage-evo", "run", "my model.onnx", "--threads", "2"],
         f"{COMMAND} run 'my model.onnx' --threads 2"),
        (["/opt/collage_evo/__main__.py", "resume", "runs/x"], f"{COMMAND} resume runs/x"),
        (["/opt/service/__main__.py", "--token", "secret"], ""),
    ],
    ids=["script", "module", "another program's own arguments"],
)  # fmt: skip
def test_the_environment_has_date_and_command(monkeypatch: pytest.MonkeyPatch, argv: list[str], command: str) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    before = datetime.now().astimezone().replace(microsecond=0)
    made = environment("a CPU", {"ncnn": "1"})
    assert made["command"] == command
    assert before <= datetime.fromisoformat(made["date"]) <= datetime.now().astimezone()
