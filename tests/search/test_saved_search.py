"""Saved costs lead to the covers, seeds and searches that they always led to: what only tidies up changes none."""

from __future__ import annotations

import json

from tests.support.saved_search import SAVED, record, saved_space


def test_saved_costs_give_the_covers_and_searches_that_they_gave() -> None:
    data = json.loads(SAVED.read_text())
    assert record(saved_space(data)) == data["expected"]
