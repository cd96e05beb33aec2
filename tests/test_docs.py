"""What the documents show works: examples run, and files, commands, keys and models that they name exist."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer

from collage_evo.cli import app
from collage_evo.config import parse_config
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import members
from collage_evo.graph.load.data import IMAGES
from collage_evo.models.builder import Builder
from collage_evo.models.builtin import BUILTINS, parameters_of
from collage_evo.patterns.language import GraphPattern, Pattern
from collage_evo.rewrites import catalogue
from tests.support.rewrites.check import rewrite_problems

ROOT = Path(__file__).parents[1]
PLACES = ("*.md", "docs/**/*.md", "plugins/*/*.md")
DOCUMENTS = [path.relative_to(ROOT).as_posix() for place in PLACES for path in sorted(ROOT.glob(place))]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def run_example(path: str, definition: str) -> Pattern:
    """Run the block of ``path`` that holds ``definition``, and give its variable ``pattern``."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"GraphPattern": GraphPattern}
    exec(next(block for block in blocks if f"def {definition}" in block), names)
    pattern = names["pattern"]
    assert isinstance(pattern, Pattern)
    return pattern


def found(pattern: Pattern, b: Builder, *outputs: str) -> list[str]:
    graph = build_graph(b.model(*outputs))
    sets = pattern.find(graph, graph.all_nodes)
    return sorted(" ".join(graph.nodes[index].op_type for index in members(nodes)) for nodes in sets)


def test_the_example_of_the_language() -> None:
    b = Builder("example")
    x = b.input("x", (1, 4, 6, 6))
    wide, narrow = (b.const(np.ones((4, 4, size, size), np.float32)) for size in (3, 1))
    y = b.op("Conv", x, wide, pads=[1, 1, 1, 1])
    y = b.op("Relu", b.op("Add", x, y))
    swish = b.op("Mul", b.op("Sigmoid", y), y)
    other = b.op("Relu", b.op("Conv", swish, narrow))
    pattern = run_example("docs/patterns.md", "convolution")
    assert found(pattern, b, other) == ["Conv Add Relu", "Conv Add Relu Sigmoid Mul"]


def test_the_example_for_authors_of_backends() -> None:
    b = Builder("example")
    x = b.input("x", (1, 4, 6, 6))
    y = b.op("Mul", b.op("Sigmoid", x), x)
    assert found(run_example("docs/add_a_backend.md", "swish"), b, y) == ["Sigmoid Mul"]


@pytest.mark.slow
def test_the_skeleton_of_a_backend_conforms_on_the_suite_s_models_and_on_the_author_s(tmp_path: Path) -> None:
    page = (ROOT / "docs/add_a_backend.md").read_text()
    skeleton, check, *_ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(skeleton.partition("class ")[2].splitlines()) <= 15
    (tmp_path / "my_backend.py").write_text(skeleton)
    b = Builder("mine")
    convolved = b.op("Conv", b.input("x", (1, 3, 8, 8)), b.const(np.ones((4, 3, 3, 3), np.float32)))
    onnx.save(b.model(b.op("Relu", convolved)), tmp_path / "my_model.onnx")
    (tmp_path / "check.py").write_text(check + '    print(*(one.case for one in report.findings), sep="\\n")\n')
    done = subprocess.run([sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert "findings, 0 failures" in done.stdout, done
    assert "my model [relu, default]" in done.stdout


def test_the_example_for_authors_of_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/rewrites.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    rewrite = names["SquareAsProduct"]()
    monkeypatch.setattr(catalogue, "REWRITES", (rewrite,))
    b = Builder("example")
    x = b.op("Tanh", b.input("x", (2, 3)))
    model = b.model(b.op("Add", *[b.op("Pow", x, b.const(np.float32(exponent))) for exponent in (2.0, 3.0)]))
    assert len(list(rewrite.sites(build_graph(model)))) == 1
    assert list(rewrite_problems(rewrite, model)) == []


def commands_in(document: str, start: str) -> list[list[str]]:
    """The words of every command in ``document`` that begins with ``start``, without ``start`` and comments."""
    found = re.findall(rf"(?:^ +|`){re.escape(start)}([^`\n]*)", (ROOT / document).read_text(), re.MULTILINE)
    return [shlex.split(words, comments=True) for words in found]


def anchor(heading: str) -> str:
    """The name under which a heading can be linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / document).read_text()):
        file, _, place = target.partition("#")
        path = (ROOT / document).parent / file if file else ROOT / document
        assert path.exists(), target
        if place:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            assert place in map(anchor, headings), target


def test_the_site_lists_every_page_once() -> None:
    index = ROOT / "docs/index.md"
    lists = re.findall(r"^```{toctree}\n(.*?)^```", index.read_text(), re.MULTILINE | re.DOTALL)
    entries = [line for text in lists for line in text.splitlines() if line and not line.startswith(":")]
    listed = [(index.parent / f"{entry}.md").resolve() for entry in entries]
    assert len(listed) == len(set(listed))
    assert set(listed) >= {ROOT / document for document in DOCUMENTS} - {index}
    assert all(path.exists() for path in listed)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_models_that_are_named_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    folders = r"(?<![0-9a-f]{7}:)\b(?:benchmarks|configs|examples|requirements|tests)"  # not those of a commit
    for file in re.findall(folders + r"/[\w./]+\.(?:py|yaml|txt)", text):
        assert "NAME" in file or (ROOT / file).exists(), file
    for name, query in re.findall(r"builtin:(\w+)(?:\?([\w=&]+))?", text):
        if name != "NAME" and f"builtin:{name}" != IMAGES:
            assert name in BUILTINS
            assert {pair.partition("=")[0] for pair in query.split("&") if pair} <= set(parameters_of(name))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_have_the_options_that_are_shown(document: str) -> None:
    for name, *words in commands_in(document, "python -m collage_evo "):
        if name == "COMMAND":
            continue
        options = {option for parameter in COMMANDS[name].params for option in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("-")} <= options, words
        overrides = [value for option, value in itertools.pairwise(words) if option == "-s"]
        parse_config({"model": {"source": "builtin:resnet50"}}, [o for o in overrides if "..." not in o], document)


def test_files_that_explanations_name_exist() -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for place in ("collage_evo", "plugins", "tests")
        for path in ROOT.glob(f"{place}/**/*.py")
    }
    texts = {path: (ROOT / path).read_text() for path in ("docs/architecture.md", "docs/add_a_backend.md")}
    texts |= {path: ast.get_docstring(ast.parse((ROOT / path).read_text())) or "" for path in files}
    for explained, text in texts.items():
        for name in re.findall(r"`([\w./]+\.py)`", text):
            known = any(f"/{path}".endswith(f"/{name}") for path in files) or (ROOT / name).exists()
            assert known, f"{explained}: {name}"
