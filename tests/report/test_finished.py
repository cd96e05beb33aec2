"""Files of results: what is written is read again, another schema is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.errors import InputError
from collage_evo.report.finished import read_finished, write_result
from collage_evo.report.result import SCHEMA
from tests.support.results import result


def test_a_result_is_read_again_and_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(path, result())
    assert read_finished(tmp_path)[0].result == result()
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 4'))
    with pytest.raises(InputError, match=f"has schema 4, this version reads {SCHEMA}"):
        read_finished(tmp_path)
