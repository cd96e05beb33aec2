"""A result as a run gives it, with the longest names that backends and seeds have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from collage_evo.report.html import write_html
from collage_evo.report.result import (
    Accuracy,
    CostModelResult,
    FrontPoint,
    Latency,
    Operator,
    RegionResult,
    Result,
    SearchResult,
    SeedResult,
    ServingResult,
    Speedup,
)
from collage_evo.search.evolution.origin import Origin

BACKENDS = ("onnxruntime", "onnxruntime/nchw", "openvino/bf16", "ncnn", "tvm")
SEEDS = ("dp", "single:onnxruntime/nchw", "greedy:openvino,onnxruntime,ncnn,tvm", "dp-diverse")
OPERATORS = (Operator("Conv", "float32"), Operator("Relu", "float32"))
NODES = ("/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/relu_1/Relu")

ENVIRONMENT = {"cpu": "a CPU", "cores": 2, "python": "3", "system": "Linux", "backends": {}, "libraries": {}} | {
    "date": "2026-01-02T03:04:05+01:00",
    "command": "",
}
ACCURACY = Accuracy(
    metric="",
    budget=0.01,
    largest=0.01,
    error_search=9e-3,
    error_held_out=9.2e-3,
    interval=(8e-3, 9.9e-3),
    samples={"calibration": 300, "search": 32, "held_out": 100},
    random=False,
)


def front_points() -> list[FrontPoint]:
    """Made up, the smallest error first: two single backends in float32, twenty placements, one alone in int8.

    The fastest placement within the budget is the answer but for one that seems faster.
    """
    exact = [
        FrontPoint(ms, 1e-6, "", f"{name} alone, float32", ("float32",), name, feasible=True, raced=True)
        for name, ms in (("openvino", 1000.0), ("onnxruntime/nchw", 1200.0))
    ]
    mixed = [
        FrontPoint(
            900.0 - 30.0 * k, 1e-3 * k, f"key{k}", "found by crossover, float32 and int8", ("float32", "int8"),
            feasible=k <= 10, answer=k == 9, pareto=True, raced=k == 9,
            remark="one short measurement; others were likelier to be fast, and raced" if k == 10 else "",
        )
        for k in range(1, 21)
    ]  # fmt: skip
    whole = FrontPoint(500.0, 2.1e-2, "", "openvino/int8 alone, int8", ("int8",), "openvino/int8")
    return [replace(exact[0], pareto=True), exact[1], *mixed, whole]


def make_result() -> Result:
    """Made up: five baselines, one of which does not run, four seeds, two regions."""
    rows = [Latency(name, 1234.56, 1230.12, 1250.98, 1000) for name in BACKENDS]
    rows[3] = Latency("ncnn", reason="build: the converter does not know the operator NonMaxSuppression of the model")
    speedup = Speedup(1.2, 1.1, 1.3, (1.2,))
    return Result(
        model={"name": "detector", "source": "detector.onnx", "nodes": 2},
        target={"device": "cpu", "threads": 2, "allowed_threads": 2},
        environment=ENVIRONMENT,
        baselines=rows,
        seeds=[SeedResult(Origin.parse(kind), 1234.56, replace(rows[0], name=kind)) for kind in SEEDS],
        best=Latency("best", 1234.56, 1230.12, 1250.98, 1000),
        answer="placement",
        best_single="onnxruntime/nchw",
        speedup_over_best_single=speedup,
        candidate_speedup=speedup,
        numerics={"max_relative_error": 1e-6},
        placement=[
            RegionResult("onnxruntime", "nchw", NODES, 1234.5, operators=OPERATORS),
            RegionResult("tvm", "tuned-0123456789ab", NODES[:1], None, operators=OPERATORS[:1]),
        ],
        search=SearchResult(1, {}, 1, 0, 1.0, 1.0, 1, [{"seconds": 1.0, "best_ms": 2.0}]),
        cost_model=CostModelResult({}, {}, 1, 0, 0, 0, 1.0, None, None, None, {}),
        wall_seconds={},
        tuning=[],
        accuracy=ACCURACY,
        front=front_points(),
        serving=[ServingResult(name, 123_456_789, 1_234_567_890, 1234.5) for name in (*BACKENDS[:3], "best")]
        + [ServingResult("tvm", 98_700_000, None, None)],
    )


def page_of(result: Result, folder: Path) -> str:
    """The HTML page of ``result``."""
    write_html(folder / "report.html", result)
    return (folder / "report.html").read_text()
