"""A result as a run gives it, with the longest names that backends and seeds have."""

from __future__ import annotations

from collage_evo.report.result import (
    CostModelResult,
    Latency,
    RegionResult,
    Result,
    SearchResult,
    SeedResult,
    ServingResult,
    Speedup,
)

BACKENDS = ("onnxruntime", "onnxruntime/nchw", "openvino/bf16", "ncnn", "tvm")
SEEDS = ("dp", "single:onnxruntime/nchw", "greedy:openvino,onnxruntime,ncnn,tvm", "dp-diverse")
NODES = ("/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/relu_1/Relu")


def make_result() -> Result:
    """Made up: five baselines, one of which does not run, four seeds, two regions."""
    rows = [Latency(name, 1234.56, 1230.12, 1250.98, 1000) for name in BACKENDS]
    rows[3] = Latency("ncnn", reason="build: the converter does not know the operator NonMaxSuppression of the model")
    speedup = Speedup(1.2, 1.1, 1.3, (1.2,))
    return Result(
        model={"name": "detector", "source": "detector.onnx", "nodes": 2},
        target={"device": "cpu", "threads": 2},
        environment={"cpu": "a CPU", "backends": {}, "python": "3", "system": "Linux"},
        baselines=rows,
        seeds=[SeedResult(kind, 1234.56, Latency(kind, 1234.56, 1230.12, 1250.98, 1000)) for kind in SEEDS],
        best=Latency("best", 1234.56, 1230.12, 1250.98, 1000),
        answer="placement",
        best_single="onnxruntime/nchw",
        speedup_over_best_single=speedup,
        candidate_speedup=speedup,
        numerics={"max_relative_error": 1e-6},
        placement=[
            RegionResult("onnxruntime", "nchw", NODES, 1234.5),
            RegionResult("tvm", "tuned-0123456789ab", NODES[:1], None),
        ],
        search=SearchResult(1, {}, 1, 0, 1.0, 1.0, 1, [{"seconds": 1.0, "best_ms": 2.0}]),
        cost_model=CostModelResult({}, {}, 1, 0, 0, 0, 1.0, None, None, None, {}),
        wall_seconds={},
        tuning=[],
        serving=[ServingResult(name, 123_456_789, 1_234_567_890, 1234.5) for name in (*BACKENDS[:3], "best")]
        + [ServingResult("tvm", 98_700_000, None, None)],
    )
