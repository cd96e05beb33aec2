"""A change goes where the documents say: what belongs to one library or one rule is in its own file alone."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from collage_evo.accuracy.named import NAMED
from collage_evo.rewrites.catalogue import REWRITES
from collage_evo.rewrites.rewrite import Rewrite

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "collage_evo"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
LIBRARIES = {
    name: entry.split(":")[0].removeprefix("collage_evo.").replace(".", "/")
    for name, entry in SETTINGS["project"]["entry-points"]["collage_evo.backends"].items()
}
"""Folder of each backend of this package, by its name."""


def table() -> dict[str, str]:
    """The rows of "Where a change goes", by what is changed."""
    _, _, text = (ROOT / "docs/architecture.md").read_text().partition("## Where a change goes\n")
    rows = re.findall(r"^\| (?!change \||---)(.+?) \| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE)
    return dict(rows)


def files_of(row: str) -> Iterator[tuple[str, list[str]]]:
    """Paths that a row names, each with the names in parentheses behind it."""
    for path, names in re.findall(r"`([\w/]+/|[\w/]+\.py)`(?: \(([^)]*)\))?", row):
        yield path, re.findall(r"`([\w.]+)`", names)


@pytest.mark.parametrize("change", table())
def test_the_files_that_a_row_names_exist_and_hold_what_it_says(change: str) -> None:
    named = list(files_of(table()[change]))
    assert named
    for path, names in named:
        place = PACKAGE / path if (PACKAGE / path).exists() else ROOT / path
        assert place.exists(), path
        text = "".join(file.read_text() for file in ([place] if place.is_file() else place.glob("*.py")))
        for name in names:
            if not name.endswith(".py"):
                assert re.search(rf"\b{name.split('.')[-1]}\b", text), f"{name} in {path}"


@cache
def words_of(path: Path) -> frozenset[str]:
    """Identifiers, parts of imported modules' names, and strings in the code of ``path``, without docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                found.add(text)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.ImportFrom(module=str(module), names=names):
                found.update(module.split("."), (one.name for one in names))
            case ast.Import(names=names):
                found.update(part for one in names for part in one.name.split("."))
    return frozenset(found)


def naming(words: Iterable[str], *outside: str) -> set[str]:
    """Modules whose code has one of ``words``, without those in the files and folders ``outside``."""
    paths = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    asked = frozenset(words)
    return {path for path in paths if not path.startswith(outside) and words_of(PACKAGE / path) & asked}


def test_rows_are_read() -> None:
    row = "`a/b.py` (`C`: what; `d.e`); whoever has `f`; a file in `here/`"
    assert list(files_of(row)) == [("a/b.py", ["C", "d.e"]), ("here/", [])]
    assert len(table()) > 10


def test_code_is_searched_without_its_prose(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text('"""tvm"""\nfrom a.ncnn import b\nname = "openvino"\n"""lanes"""\n')
    assert words_of(tmp_path / "some.py") == {"a", "ncnn", "b", "name", "openvino"}


BESIDES: Mapping[str, set[str]] = {
    # ONNX Runtime is the reference, most people's library, and the reader of a form of an export.
    "onnxruntime": {
        *("graph/reference/reference.py", "graph/reference/ort_values.py"),
        *("answer/baselines.py", "export/__init__.py", "cli/answers.py"),
    }
}
"""Modules outside of backends/ that name a library."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_named_among_backends_alone(library: str) -> None:
    assert naming({library}, "backends/") == BESIDES.get(library, set())
    assert naming({library})


def test_no_library_imports_the_package_of_another() -> None:
    for library, package in LIBRARIES.items():
        others = "|".join(LIBRARIES.keys() - {library})
        foreign = re.compile(rf"^\s*(from|import) collage_evo\.backends\.({others})\b", re.MULTILINE)
        assert not [path for path in (PACKAGE / package).rglob("*.py") if foreign.search(path.read_text())]


def test_quantisation_knows_no_library() -> None:
    """Not in comments either: what holds for one library is in the ``int8.py`` of its package."""
    name = re.compile(r"openvino|onnx ?runtime|mlas|onednn|ncnn|tvm|tensorrt|cudnn|torch", re.IGNORECASE)
    assert name.search((PACKAGE / "backends/openvino/int8.py").read_text())
    assert not [path for path in sorted(PACKAGE.glob("precision/**/*.py")) if name.search(path.read_text())]


def test_search_costs_and_runtime_know_a_host_and_a_device_only() -> None:
    assert naming({"cuda"}, "backends/") == {"hardware/accelerator.py"}


def test_an_arithmetic_is_known_where_it_is_written_into_pieces() -> None:
    members = {"BFLOAT16", "INT8_WEIGHTS", "INT8_BLOCKS", "INT8_ROWS", "TF32"}
    # graph/ and testing/ have ONNX's own bfloat16; a result says that no bfloat16 took part.
    assert naming(members, "precision/", "backends/", "graph/", "testing/", "run/result.py") == set()


def test_an_objective_is_known_to_who_measures_it_and_to_who_bounds_it() -> None:
    assert naming({"ERROR"}, "backends/", "cli/", "commands/") == {
        "genome/outcome.py",
        "run/objectives.py",  # the bounds, and what each match adds
        "run/search.py",  # an earlier search counts whatever its errors
        "answer/candidates.py",
        "search/mixtures/knapsack.py",  # the mixed-precision ladder
        "search/evolution/seeds.py",
    }


@pytest.mark.parametrize("metric", sorted(NAMED.keys() - {"text"}))  # a usual word
def test_a_metric_is_named_in_one_file(metric: str) -> None:
    in_db = {"report/accuracy.py"} if metric == "psnr" else set()
    assert naming({metric}) == {"accuracy/named.py"} | in_db


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_is_named_in_its_file_and_in_the_catalogue(rewrite: Rewrite) -> None:
    own = type(rewrite).__module__.removeprefix("collage_evo.").replace(".", "/") + ".py"
    assert naming({type(rewrite).__name__}) == {"rewrites/catalogue.py"}
    assert naming({rewrite.name}) == {own}
