"""A person's own file is run as Python would run it from its folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from collage_evo.errors import InputError
from collage_evo.graph.load.functions import load_function

FILE = """
from __future__ import annotations
from dataclasses import dataclass
from lies_beside import ONE

@dataclass
class Pair:
    first: int
    second: int

def total():
    from read_later import TWO
    pair = Pair(ONE, TWO)
    return pair.first + pair.second
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_a_function_imports_what_lies_beside_its_file_when_it_is_read_and_when_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text(FILE)
    (tmp_path / "lies_beside.py").write_text("ONE = 1")
    (tmp_path / "read_later.py").write_text("TWO = 2")
    assert load_function(f"{tmp_path}/given.py:total")() == 3


def test_a_file_beside_it_hides_no_module_of_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tabnanny", raising=False)  # or the import would not look for it
    (tmp_path / "given.py").write_text("def where():\n    import tabnanny\n    return tabnanny.__file__\n")
    (tmp_path / "tabnanny.py").write_text("")
    assert Path(load_function(f"{tmp_path}/given.py:where")()).parent != tmp_path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("none.py:f", "no file"),
        ("given.py:g", "no function 'g'"),
        ("broken.py:f", "SyntaxError"),
        ("leaves.py:f", "SystemExit: 3"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "given.py").write_text("def f(): pass")
    (tmp_path / "broken.py").write_text("def f(:")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)")
    with pytest.raises(InputError, match=said):
        load_function(f"{tmp_path}/{text}")
