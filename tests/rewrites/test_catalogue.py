"""Every rewrite of the catalogue computes what it replaces, alone and inside larger regions."""

from __future__ import annotations

import re

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.graph.read import build_graph
from collage_evo.rewrites.catalogue import REWRITES
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.testing.rewrites.cases import rewritable_models
from collage_evo.testing.rewrites.check import rewrite_problems


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_computes_what_it_replaces(rewrite: Rewrite) -> None:
    @settings(max_examples=15, deadline=None, derandomize=True, database=None)
    @given(rewritable_models(rewrite.name), st.integers(0, 2**31))
    def check(model: onnx.ModelProto, seed: int) -> None:
        assert next(rewrite.sites(build_graph(model)), 0), "its case has no place where it applies"
        assert list(rewrite_problems(rewrite, model, seed)) == []

    check()


def test_names_tell_rewrites_apart_and_can_be_part_of_a_variants_name() -> None:
    names = [rewrite.name for rewrite in REWRITES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in names)
