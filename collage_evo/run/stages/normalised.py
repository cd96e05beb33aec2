"""Baselines of the normalised model, for models whose memory layout differs from the user's file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from collage_evo.answer.baselines import Baseline
from collage_evo.backends.registry import get_backend
from collage_evo.graph.ir import Graph, Node
from collage_evo.measure.builders import Builders
from collage_evo.measure.evaluate import MeasuredEvaluator
from collage_evo.patterns.match import Placement, Region
from collage_evo.run.context import RunContext
from collage_evo.run.stages.costs import CUT_TIMING

STAGE = "single backends on the normalised model"


def on_normalised(run: RunContext, graph: Graph, baselines: Sequence[Baseline]) -> tuple[Baseline, ...]:
    """``baselines`` with the latencies of the normalised model, ``graph``, if its signals are in rows and not in
    columns.

    The file's own times then do not predict those of its parts: for a pitch tracker OpenVINO in bfloat16 takes 90 ms,
    and 6.2 for the same in rows (Xeon with AMX). Libraries that compile for long have the file's times.
    """
    if not any(_makes_rows(graph, node) for node in graph.nodes):
        return tuple(baselines)
    known = run.store.once(STAGE.replace(" ", "_"), dict[str, float], partial(_measured, run, graph, baselines))
    return tuple(_timed(one, known[one.name]) if one.name in known else one for one in baselines)


def _timed(baseline: Baseline, ms: float) -> Baseline:
    return replace(baseline, outcome=replace(baseline.outcome, latency_ms=ms, failure=None))


def _makes_rows(graph: Graph, node: Node) -> bool:
    """Whether it is the first operator that :class:`~collage_evo.graph.row_images.RowImages` wrote, or looks like
    it."""
    if node.op_type != "Reshape":
        return False
    given, made = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    return len(given) == 4 and given[3] == 1 < given[2] and made == (*given[:2], 1, given[2])


def _measured(run: RunContext, graph: Graph, baselines: Sequence[Baseline]) -> dict[str, float]:
    """ms by the name of a baseline; without those that do not run the whole graph."""
    placements = {
        one.name: Placement((Region(graph.all_nodes, one.backend, one.variant),))
        for one in baselines
        if (backend := get_backend(one.backend)).runs_any_model(backend.variant(one.variant))
    }
    with run.stage(STAGE, len(placements)), Builders(run.pool) as builders:
        outcomes = MeasuredEvaluator(run.whole, builders, CUT_TIMING, math.inf).evaluate(placements.values())
    found = zip(placements, outcomes, strict=True)
    return {name: one.latency_ms for name, one in found if one is not None and one.latency_ms is not None}
