"""Check that no room of the repository has more statements than ``sizes.toml`` permits: ``python .ci/sizes.py``.

Docstrings, imports, comments and blank lines do not count, so nothing that helps a reader has to go for a figure.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def statements(path: Path) -> int:
    """Statements of a file, without docstrings and imports."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.stmt)]
    return sum(not isinstance(node, ast.Import | ast.ImportFrom) and not _is_docstring(node) for node in nodes)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def rooms(top: Path) -> Counter[str]:
    """Statements of each folder in ``top``; files that lie in ``top`` itself are the room ``"."``."""
    found = Counter[str]()
    for path in top.rglob("*.py"):
        inside = path.relative_to(top).parts
        if "build" not in inside:
            found[inside[0] if len(inside) > 1 else "."] += statements(path)
    return found


def problems(root: Path) -> list[str]:
    """What does not agree with ``sizes.toml``; each line says what to do."""
    wrong = []
    for name, table in tomllib.loads((root / "sizes.toml").read_text()).items():
        at_most = {room: row["statements"] for room, row in table["rooms"].items()}
        for room, count in rooms(root / name).items():
            if count > at_most.get(room, 0):
                allowed = f"sizes.toml permits {at_most.get(room, 0)}: remove what it replaces"
                wrong.append(f"{name}/{room} has {count} statements, {allowed}")
        if (total := sum(at_most.values())) > table["at_most"]:
            wrong.append(f"the rooms of {name} add up to {total}, more than {table['at_most']}: lower another row")
    return wrong


if __name__ == "__main__":
    sys.exit("\n".join(problems(ROOT)) or None)
