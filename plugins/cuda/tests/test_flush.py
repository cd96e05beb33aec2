"""What is flushed before a region is timed on a device, and the keys of its costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.backends.variants import Variant
from collage_evo.costs.matches import CostKeys
from collage_evo.fitness import cold_caches
from collage_evo.fitness.cold_caches import flush_bytes
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo_cuda.accelerator import Cuda
from tests.costs.test_matches import CONV, GRAPH, SETTINGS
from tests.fitness.helpers import make_setting
from tests.fitness.test_flush import FULL
from tests.fitness.test_flush import GRAPH as SMALL
from tests.support.models import chain


@pytest.mark.parametrize("nodes", [0b11, SMALL.all_nodes])
def test_a_device_is_at_work_while_even_a_small_models_regions_are_launched(nodes: int) -> None:
    assert flush_bytes(SMALL, nodes, FULL, Variant(device="cuda")) == Cuda.flush_bytes[0]


def test_costs_share_a_key_only_where_as_much_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    match, settings, found = Match(1, "onnxruntime", "cuda"), replace(SETTINGS, flush=True), set()
    for touched in (100 * 2**20, 200 * 2**20):
        monkeypatch.setattr(cold_caches, "touched_bytes", lambda graph, nodes, widths, touched=touched: touched)
        found.add(CostKeys(build_graph(chain(3)), make_setting(tmp_path).target, settings).of(match))
    assert len(found) == 2, "a processor's flush ends at 64 MB, a device's at 256"


def test_a_part_on_the_device_and_the_same_on_the_host_have_keys_of_their_own_flush(tmp_path: Path) -> None:
    keys = CostKeys(GRAPH, make_setting(tmp_path).target, replace(SETTINGS, flush=True))
    assert f"flush{Cuda.flush_bytes[0].bit_length()} on cuda|" in keys.of(replace(CONV, variant="cuda"))
    assert "on cuda" not in keys.of(CONV)
