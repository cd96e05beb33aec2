"""Identifiers of package and benchmarks use the words of the field: words that had several meanings do not return."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_OURS = {"told", "wholes", "kept", "beside", "alone", "crew", "station", "stations", "equipment"}


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """What ``path`` defines, by line: functions, classes, arguments, variables, attributes; and its own name."""
    yield 0, path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def test_no_identifier_has_a_word_that_is_not_the_field_s() -> None:
    assert parts("format_toldKept") == {"format", "told", "kept"}
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for folder in ("collage_evo", "plugins/*/collage_evo_*", "benchmarks")
        for path in sorted(ROOT.glob(f"{folder}/**/*.py"))
        for line, name in identifiers(path)
        if parts(name) & NOT_OURS
    ]
    assert not found
