"""Latency by the size of inputs: the words, the table and the picture of an open answer."""

from __future__ import annotations

from xml.etree import ElementTree

from collage_evo.codec import from_json, to_json
from collage_evo.graph.load.distribution import Distribution
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes, Shapes
from collage_evo.report.console import PlainConsole
from collage_evo.report.pictures import NARROW, WIDE, sizes_svg
from collage_evo.report.sizes import ANSWER, LatencyBySize, SizeTimes, describe_open, size_rows, sizes_table

BATCH, LENGTH = Dimension(1, 1, "batch"), Dimension(1, 512, "sequence")
TEXT = OpenShapes({"ids": (BATCH, LENGTH), "mask": (BATCH, LENGTH)})
IMAGES = OpenShapes({"x": (Dimension(1, 8, "batch"), Dimension(3, 3), Dimension(32, 640, "width"))})
MS = {4: (2.9, 5.1, 6.3), 32: (10.6, 16.4, 15.8), 8: (4.1, 6.7, 8.5), 256: (77.0, 103.0, 106.0)}


def text(length: int) -> Shapes:
    return {"ids": [1, length], "mask": [1, length]}


COUNTED = Distribution.of(map(text, (4, 8, 8, 16, 16, 16, 32, 256)))
BY_LENGTH = LatencyBySize.of(
    TEXT,
    COUNTED,
    [(text(n), dict(zip((ANSWER, "ONNX Runtime", "OpenVINO"), ms, strict=True))) for n, ms in MS.items()],
)


def test_times_are_in_the_order_of_the_size_that_varies() -> None:
    assert BY_LENGTH.what == "sequence"
    assert [(one.size, one.samples) for one in BY_LENGTH.times] == [(4, 1), (8, 2), (32, 1), (256, 1)]
    assert BY_LENGTH.names == [ANSWER, "ONNX Runtime", "OpenVINO"]
    assert from_json(to_json(BY_LENGTH), LatencyBySize) == BY_LENGTH
    shapes: list[Shapes] = [{"x": [8, 3, 32]}, {"x": [1, 3, 64]}]
    several = LatencyBySize.of(IMAGES, Distribution.of(shapes), [(one, {ANSWER: 1.0}) for one in shapes])
    assert several.what == "elements"
    assert [one.size for one in several.times] == [192, 768]


def test_the_table_has_the_frequent_sizes_and_both_ends_and_fits_a_terminal() -> None:
    assert size_rows(BY_LENGTH)[0] == ("4", "1", "2.90", "5.10", "6.30", "1.76")
    assert size_rows(BY_LENGTH)[2][-1] == "1.49", "over the fastest library there"
    assert [row[0] for row in size_rows(BY_LENGTH, most=3)] == ["4", "8", "256"]
    alike = LatencyBySize("n", tuple(SizeTimes(n, 1, {ANSWER: 1.0}) for n in range(20)))
    assert [row[0] for row in size_rows(alike, most=5)] == ["0", "1", "7", "13", "19"]
    assert size_rows(alike)[0] == ("0", "1", "1.00", "-")
    many = ("the answer", "ONNX Runtime in float32 (nchw)", "OpenVINO in bfloat16", "ncnn in float32 (sgemm)", "TVM")
    wide = LatencyBySize("sequence_length", tuple(SizeTimes(n, 9, dict.fromkeys(many, 1234.0)) for n in (4, 512)))
    console = PlainConsole(width=80, record=True)
    console.print(sizes_table(wide))
    words = console.export_text().split()
    assert {"ONNX", "Runtime", "(nchw)", "bfloat16", "1234", "512", "samples", "gain"} <= set(words), (
        "each in a piece"
    )


def test_what_it_is_for_is_said_in_a_line() -> None:
    sampled = "latency expected over the data: 8 samples, sequence 4 to 256"
    assert describe_open(TEXT, COUNTED, ranges=True, drawn=False) == (
        f"any sequence from 1 to 512, batch 1; {sampled}"
    )
    assert describe_open(TEXT, COUNTED, ranges=False, drawn=False) == f"any size that the model takes; {sampled}"
    assert describe_open(IMAGES, Distribution.of(IMAGES.drawn(60, seed=0)), ranges=True, drawn=True) == (
        "any batch from 1 to 8, any width from 32 to 640; latency expected over 60 drawn shapes, each doubling "
        "equally often"
    )


def test_the_picture_has_a_line_for_each_and_the_same_in_words() -> None:
    for width in (WIDE, NARROW):
        svg = ElementTree.fromstring(sizes_svg(BY_LENGTH, width))
        words = {element.text for element in svg.iter("text")}
        assert {ANSWER, "ONNX Runtime", "OpenVINO", "latency (ms)", "sequence"} <= words
        marks = [element for element in svg.iter("circle") if element.get("class") == "answer"]
        assert [*svg.iter("circle")][-len(MS) :] == marks, "above those of the libraries"
        assert marks[0].findtext("title") == "the answer: 2.90 ms at sequence 4"
        assert len([*svg.iter("circle")]) == 3 * len(MS)
        assert "OpenVINO: 6.30 ms at 4, 8.50 ms at 8" in (svg.findtext("desc") or "")
        assert [float(mark.get("cx", "")) for mark in marks] == sorted(float(mark.get("cx", "")) for mark in marks)
    assert sizes_svg(LatencyBySize("n", (SizeTimes(4, 1, {ANSWER: 1.0}),))) == ""
    hostile = LatencyBySize("<n $ $\\frac$>", tuple(SizeTimes(n, 1, {"<b>": 1.0}) for n in (1, 2)))
    ElementTree.fromstring(sizes_svg(hostile))
