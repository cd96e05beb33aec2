"""What the documents show works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from collage_evo.graph.ir import members
from collage_evo.graph.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.patterns.language import GraphPattern, Pattern

ROOT = Path(__file__).parents[1]


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


def test_the_example_of_the_readme() -> None:
    b = Builder("example")
    x = b.input("x", (1, 4, 6, 6))
    y = b.op("Mul", b.op("Sigmoid", x), x)
    assert found(run_example("README.md", "swish"), b, y) == ["Sigmoid Mul"]
