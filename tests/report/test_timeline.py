"""A timeline is a file in the Chrome trace event format, whose spans nest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collage_evo.report.timeline import write_timeline
from collage_evo.runtime.trace import Event

EVENTS = (
    Event(0, 0, "openvino", "int8 + float32", "", "", ("a", "b"), 0.0, 30.3, 7),
    Event(0, 0, "openvino", "int8", "Convolution", "n0_Conv", ("a",), 0.0, 20.1, 7, placed=True),
    Event(0, 0, "openvino", "float32", "Softmax", "n1_Softmax", ("b",), 20.1, 10.2, 7, placed=True),
    Event(0, 1, "onnxruntime", "float32", "", "", ("c",), 30.3, 5.0, 7),
    Event(0, 1, "onnxruntime", "float32", "Gemm", "c", ("c",), 31.3, 3.0, 7),
)


def written(path: Path) -> list[dict[str, Any]]:
    write_timeline(path, EVENTS, "run/best.collage")
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_process_and_thread_have_names_and_spans_nest_to_the_nanosecond(tmp_path: Path) -> None:
    events = written(tmp_path / "new" / "trace.json")
    named = {event["name"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert named["process_name"] == "run/best.collage"
    assert "calling thread" in named["thread_name"]
    open_ends: list[int] = []
    spans = [event for event in events if event["ph"] == "X"]
    for event in spans:
        begin, end = (int(1000 * us) for us in (event["ts"], event["ts"] + event["dur"]))
        open_ends = [one for one in open_ends if one > begin]
        assert all(end <= one for one in open_ends)
        open_ends.append(end)
    assert {event["pid"] for event in events} == {1}
    assert [event["cat"] for event in spans] == ["region", "operator", "operator", "region", "operator"]


def test_spans_say_who_computes_what_in_which_precision(tmp_path: Path) -> None:
    region, convolution, _, other, gemm = (e for e in written(tmp_path / "trace.json") if e["ph"] == "X")
    assert region["name"] == "region 0: OpenVINO in int8 + float32"
    assert region["args"]["nodes"] == "2 of the model"
    assert (convolution["name"], convolution["args"]["nodes"], convolution["args"]["precision"]) == (
        "Convolution",
        "a",
        "int8",
    )
    assert "mean of all runs" in convolution["args"]["time"]
    assert gemm["args"]["time"] == "of this run"
    assert other["name"] == "region 1: ONNX Runtime in float32"
