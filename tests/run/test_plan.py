"""The table of a run's plan: its order, and its page in the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.config import Config
from collage_evo.graph.prepare import PreparedModel
from collage_evo.run.context import RunContext
from collage_evo.run.machine import Backends
from collage_evo.run.plan import PLAN, WITHOUT_SEARCH, picking
from collage_evo.run.records import ByMaker, Plan
from collage_evo.run.search import Found
from collage_evo.run.warm_start import WarmStart

GIVEN = (RunContext, PreparedModel, Backends, WarmStart, Found)
DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize("plan", [PLAN, WITHOUT_SEARCH, picking(skipped=False), picking(skipped=True)])
def test_each_row_needs_records_of_rows_before_it(plan: Plan) -> None:
    made: set[object] = set(GIVEN)
    for row in plan.rows:
        assert set(row.needs) <= made, row.make
        assert row.record not in made
        made.add(row.record)


def test_bounds_are_keys_of_the_configuration() -> None:
    for section, name in (row.bound.split(".") for row in PLAN.rows if row.bound):
        assert name in Config.model_fields[section].annotation.model_fields  # type: ignore[union-attr]


def table() -> str:
    """The rows as the documents show them."""
    lines = ["| record | needs | stored as | at most |", "|---|---|---|---|"]
    for row in PLAN.rows:
        needs = ", ".join(str(getattr(need, "__name__", "Found")) for need in row.needs if need is not RunContext)
        stored = f"`{row.stored.path}`" if row.stored else ""
        stored += ", by its maker" if isinstance(row.stored, ByMaker) else ""
        cells = (f"`{row.record.__name__}`", needs, stored, f"`{row.bound}`" if row.bound else "")
        lines.append(f"| {' | '.join(cells)} |".replace("  ", " "))
    return "\n".join(lines)


def test_documents_show_the_table() -> None:
    assert table() in DOCUMENT.read_text(), f"expected:\n{table()}"
