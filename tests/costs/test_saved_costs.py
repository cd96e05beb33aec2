"""A run that is resumed searches the space that it searched before."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.matches import CostTable
from collage_evo.costs.saved_costs import MeasuredCosts, SavedCosts, costs_key
from collage_evo.errors import DamagedFile
from collage_evo.files import read_json, write_json
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Objective
from collage_evo.graph.convert.read import build_graph
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Match
from collage_evo.policy import Policy
from tests.support.models import chain
from tests.support.numerics import in_int8
from tests.support.spaces import make_space, resnet_like


def test_costs_come_back_as_they_were_and_those_of_something_else_do_not(tmp_path: Path) -> None:
    space = make_space(resnet_like(2), random.Random(0), engines=4, families=True, copies=0.3, rewrites=9)
    count = len(space.matches)
    cost = replace(space.cost, match_ms=(float("inf"), *space.cost.match_ms[1:]), estimated=frozenset({1, 3}))
    space = replace(space, cost=cost, terms={Objective.ERROR: tuple(index / 7 for index in range(count))})
    failures = {0: Failure(Fault.WRONG_NUMBERS, "relative error 2", 2.0)}
    costs = MeasuredCosts(CostTable(cost.match_ms, failures), space, 5, 2, 1)
    write_json(tmp_path / "costs.json", SavedCosts, SavedCosts.of("key", costs))
    saved = read_json(tmp_path / "costs.json", SavedCosts)
    assert (saved.key, saved.costs(space.graph, {})) == ("key", costs)
    with pytest.raises(DamagedFile, match=r"work/costs\.json is not of this graph: delete it"):
        saved.costs(build_graph(chain(1)), {})


def test_costs_of_which_one_is_missing_are_damaged(tmp_path: Path) -> None:
    space = make_space(resnet_like(2), random.Random(0))
    costs = MeasuredCosts(CostTable(space.cost.match_ms, {}), space, 5, 2, 1)
    write_json(tmp_path / "costs.json", SavedCosts, SavedCosts.of("key", costs))
    saved = json.loads((tmp_path / "costs.json").read_text())
    (tmp_path / "costs.json").write_text(json.dumps(saved | {"match_ms": saved["match_ms"][:-1]}))
    with pytest.raises(DamagedFile, match="one cost for each"):
        read_json(tmp_path / "costs.json", SavedCosts)


def test_costs_are_of_a_graph_its_matches_a_target_and_a_policy() -> None:
    graph = build_graph(chain(2))
    found = Matches((Match(1, "b"), Match(2, "b"), Match(2, "b", "int8", base="default", edits=in_int8(2))), {})
    key = costs_key(graph, found, Target())
    assert key == costs_key(graph, replace(found, matches=found.matches[::-1]), Target())
    assert key != costs_key(graph, replace(found, matches=found.matches[1:]), Target())
    written = (*found.matches, Match(2, "b", "default~r", base="default", edits=(("r", 2),)))
    other = (*found.matches, Match(2, "b", "default~r", base="default", edits=(("r", 1),)))
    assert len({key, *(costs_key(graph, replace(found, matches=some), Target()) for some in (written, other))}) == 3
    assert key != costs_key(graph, found, Target(threads=2))
    assert key != costs_key(build_graph(chain(3)), found, Target())
    assert key == costs_key(graph, found, Target(), Policy())
    assert key != costs_key(graph, found, Target(), Policy(cuts=8))
