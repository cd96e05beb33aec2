"""No code compares or searches text for people: stages, origins and failures are values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_evo.report.stage import Stage
from collage_evo.search.evolution.origin import Way

PACKAGE = Path(__file__).parents[1] / "collage_evo"
WRITTEN_IN = "search/evolution/origin.py"
METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "split", "partition", "find", "index", "count"}
PATTERNS = {"match", "search", "fullmatch", "sub", "split", "findall"}
FAILURES = {".message", ".detail", ".raw_text"}
"""What people read of a failure. A library's exception is another matter: text is all that it has."""
SENTENCES = {str(text) for stage in Stage for text in (stage.value, stage.words)}


def compared(tree: ast.AST) -> Iterator[tuple[int, list[ast.expr]]]:
    """Expressions whose text is compared, searched or cut, by line."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others, ops=ops):
                if any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in ops):
                    yield node.lineno, [left, *others]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name), args=args) if name in PATTERNS:
                yield node.lineno, args
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in METHODS:
                yield node.lineno, [value, *args]
            case ast.Match(subject=subject, cases=cases):
                patterns = (one for case in cases for one in ast.walk(case.pattern))
                yield node.lineno, [subject, *(one.value for one in patterns if isinstance(one, ast.MatchValue))]


def literals(parts: list[ast.expr]) -> set[str]:
    """Texts with a word in ``parts``; also those of f-strings and of tuples."""
    values = [node.value for part in parts for node in ast.walk(part) if isinstance(node, ast.Constant)]
    return {value for value in values if isinstance(value, str) and any(map(str.isalpha, value))}


def names(parts: list[ast.expr]) -> set[str]:
    """Names in ``parts``: of variables, and of attributes after a point."""
    nodes = [node for part in parts for node in ast.walk(part)]
    attributes = {f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def is_text_of_people(parts: list[ast.expr]) -> bool:
    texts, who = literals(parts), names(parts)
    ways = {*Way, "seed:"}
    origins = any(text.removeprefix("seed:").partition(":")[0] in ways for text in texts if ":" in text)
    by_kind = {"kind", ".kind", "origin", ".origin"} & who and texts & ways
    of_stage = {"stage", ".stage"} & who and any(text in sentence for text in texts for sentence in SENTENCES)
    return bool(origins or by_kind or of_stage or texts & SENTENCES or (FAILURES & who and texts))


def found(source: str) -> list[int]:
    return sorted({line for line, parts in compared(ast.parse(source)) if is_text_of_people(parts)})


@pytest.mark.parametrize(
    "line",
    [
        'kind.startswith("greedy")',
        'kind.removeprefix("seed:")',
        'one.kind == "mutation"',
        'name.partition(":")[0] if name == "single:a" else ""',
        'kind in ("seed:dp", "seed:dp-front")',
        '"tuning" in stage',
        'name == "search: timing placements" or name == "timing placements"',
        'failure.message.startswith("cannot")',
        're.search("out of memory", failure.detail)',
    ],
)
def test_a_line_that_compares_such_text_is_found(line: str) -> None:
    assert found(line)


def test_no_code_compares_text_for_people() -> None:
    lines = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) != WRITTEN_IN
        for line in found(path.read_text())
    ]
    assert not lines
