"""What the documents show works: examples run, and files, commands, keys and models that they name exist."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
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
PLACES = ("*.md", "docs/*.md", "plugins/*/*.md")
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


def test_the_example_for_authors_of_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/rewrites.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    rewrite = names["SquareAsProduct"]()
    monkeypatch.setattr(catalogue, "REWRITES", (rewrite,))
    b = Builder("example")
    x = b.op("Tanh", b.input("x", (2, 3)))
    squares = [b.op("Pow", x, b.const(np.float32(exponent))) for exponent in (2.0, 3.0)]
    model = b.model(b.op("Add", *squares))
    assert len(list(rewrite.sites(build_graph(model)))) == 1
    assert list(rewrite_problems(rewrite, model)) == []


def commands_in(document: str, start: str) -> list[list[str]]:
    """The words of every command in ``document`` that begins with ``start``, without ``start`` and comments."""
    text = (ROOT / document).read_text()
    found = re.findall(rf"(?:^ +|`){re.escape(start)}([^`\n]*)", text, re.MULTILINE)
    return [shlex.split(words, comments=True) for words in found]


def anchor(heading: str) -> str:
    """The name under which a heading can be linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / document).read_text()):
        file, _, place = target.partition("#")
        path = (ROOT / document).parent / file if file else ROOT / document
        assert path.exists(), target
        if place:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            assert place in map(anchor, headings), target


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


@pytest.mark.parametrize("document", DOCUMENTS)
def test_benchmarks_have_the_options_that_are_shown(document: str) -> None:
    for script, *words in commands_in(document, "python benchmarks/"):
        if script != "NAME.py":
            source = (ROOT / "benchmarks" / script).read_text()
            assert all(f'"{word}"' in source for word in words if word.startswith("--")), words


def classes_of(folder: Path) -> dict[str, set[str]]:
    """The attributes that each class in ``folder`` defines, by its name."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                body = list(ast.walk(node))
                names = {part.name for part in body if isinstance(part, ast.FunctionDef)}
                names |= {part.id for part in body if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
                names |= {part.attr for part in body if isinstance(part, ast.Attribute)}
                found.setdefault(node.name, set()).update(names)
    return found


def test_files_and_attributes_that_explanations_name_exist() -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for place in ("collage_evo", "plugins", "tests")
        for path in ROOT.glob(f"{place}/**/*.py")
    }
    classes = classes_of(ROOT / "plugins") | classes_of(ROOT / "collage_evo") | classes_of(ROOT / "tests/support")
    texts = {path: (ROOT / path).read_text() for path in ("docs/architecture.md", "docs/add_a_backend.md")}
    texts |= {path: ast.get_docstring(ast.parse((ROOT / path).read_text())) or "" for path in files}
    for text in texts.values():
        for name in re.findall(r"`([\w./]+\.py)`", text):
            assert any(f"/{path}".endswith(f"/{name}") for path in files) or (ROOT / name).exists(), name
        for kind, attribute in re.findall(r"`([A-Z]\w*[a-z]\w*)\.(\w+)`", text):
            assert attribute in classes[kind], f"{kind}.{attribute}"


def test_usage_names_every_command_and_every_model() -> None:
    text = (ROOT / "docs/usage.md").read_text()
    assert not {name for name in COMMANDS if f"| `{name}" not in text}
    assert not {name for name in BUILTINS if f"`builtin:{name}`" not in text}


def test_keys_that_usage_explains_have_the_defaults_that_it_tells() -> None:
    config = parse_config({"model": {"source": "builtin:resnet50"}}, (), "defaults").model_dump()
    _, _, table = (ROOT / "docs/usage.md").read_text().partition("The most useful keys:")
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table.partition("##")[0], re.MULTILINE)
    pairs = [zip(keys.split(", "), told.split(", "), strict=False) for keys, told in rows]
    explained = dict(itertools.chain.from_iterable(pairs))
    assert len(explained) > 10
    for key, told in explained.items():
        section, name = key.strip("`").split(".", 1)
        if name == "tvm.trials":  # a backend's own section, which is there once it is set
            continue
        assert name.split(".")[0] in config[section], key
        if re.fullmatch(r"[\d.]+|`\w+`|false", told):
            assert str(config[section][name]).lower().removesuffix(".0") == told.strip("`"), key


def test_every_file_of_the_package_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    package = ROOT / "collage_evo"
    data = {path for pattern in settings["collage_evo"] for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert not {path for path in files - data if path.suffix != ".py"}
    assert not {path.parent for path in files if not (path.parent / "__init__.py").exists()}
