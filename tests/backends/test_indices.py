"""What the documents say of operators with indices is what the backends do."""

from __future__ import annotations

from pathlib import Path

from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend
from collage_evo.graph.convert.read import build_graph
from collage_evo.testing.cases.indices import Indexed, index_cases

DOCUMENT = Path(__file__).parents[2] / "docs" / "backends.md"
BACKENDS = ("onnxruntime", "openvino", "tvm", "ncnn", "torch")
HEAD = f"| input of a request | {' | '.join(BACKENDS)} |"


def standing(backend: Backend, case: Indexed) -> str:
    """Whether ``backend`` declines the case, each request is checked before it runs, or it is safe by itself."""
    graph = build_graph(case.model)
    if not all(backend.takes(graph, node) for node in graph.nodes):
        return "declined"
    return "by itself" if any(map(backend.guards, backend.variants)) else "checked"


def row(name: str) -> str:
    case = index_cases()[name]
    stand = (standing(get_backend(backend), case) for backend in BACKENDS)
    return f"| {name.replace('_', ' ')} | {' | '.join(stand)} |"


def test_the_table_of_indices_is_what_the_backends_do() -> None:
    rows = [row(name) for name in index_cases()]
    told = DOCUMENT.read_text().partition(HEAD)[2].splitlines()[2 : 2 + len(rows)]
    assert told == rows, "\n".join([HEAD, "|---" * (len(BACKENDS) + 1) + "|", *rows])
