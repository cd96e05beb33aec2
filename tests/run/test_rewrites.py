"""A run in which a rewritten part is the fastest there is: it is in the answer, and a person is told."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import weight
from tests.cli.commands import collage
from tests.support.clock import install_clock
from tests.support.faults import install_backend
from tests.support.halves import HostHalf
from tests.support.quick import QUICK, options

pytestmark = pytest.mark.slow

NAME = "pixel-products"
RUN = {**QUICK, "backends.use": ["hosthalf"], "search.evaluations": 3, "final.rounds": 6, "costs.seconds": 300}


class Place:
    """A folder with tiny.onnx: two 1x1 convolutions of one pixel, on a backend that is slow at convolutions."""

    def __init__(self, folder: Path) -> None:
        b = Builder("two")
        x = b.op("Relu", b.input("x", (1, 4, 1, 1)))
        ends = [b.op("Conv", x, b.const(weight(made, 4, 1, 1)), name=f"conv{made}") for made in (3, 5)]
        onnx.save(b.model(b.op("Sigmoid", b.op("Concat", *ends, axis=1))), folder / "tiny.onnx")
        install_clock(folder / "site")
        self.folder = folder
        self.collage = partial(collage, cwd=folder, **install_backend(folder / "site", HostHalf))

    def result(self, run: str = "run") -> Any:
        return json.loads((self.folder / run / "result.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("rewrites"))
    done = place.collage("run", "tiny.onnx", "--out", "run", *options(RUN))
    assert done.returncode == 0, done.stderr
    assert NAME in place.collage("show", "run", "--all").stdout
    return place


def test_the_rewritten_part_is_in_the_answer_in_one_piece_with_its_neighbours(finished: Place) -> None:
    result = finished.result()
    assert result["answer"] == "placement"
    assert result["speedup_over_best_single"]["estimate"] > 1.2
    (region,) = result["placement"]
    assert (region["backend"], region["variant"], len(region["nodes"])) == ("hosthalf", "default", 5)
    assert region["rewrites"] == [{"rewrite": NAME, "nodes": [node]} for node in ("conv3", "conv5")]
    assert NAME in (finished.folder / "run" / "report.html").read_text()


def test_a_run_is_resumed_with_what_it_measured(finished: Place) -> None:
    costs = (finished.folder / "run" / "work" / "costs.json").read_bytes()
    done = finished.collage("resume", "run", "-s", "search.evaluations=4")
    assert done.returncode == 0, done.stderr
    assert "going on with the search" in done.stderr
    assert (finished.folder / "run" / "work" / "costs.json").read_bytes() == costs
    assert finished.result()["placement"][0]["rewrites"]


def test_explain_names_the_rewrite_and_what_it_takes(finished: Place) -> None:
    told = finished.collage("explain", "run", "--region", 0)
    assert told.returncode == 0, told.stderr
    assert f"rewritten, {NAME}: conv3" in told.stdout
    (answer,) = json.loads(finished.collage("explain", "run", "--node", "conv3", "--json").stdout)["answers"]
    offers = {offer["variant"]: offer["ms"] for offer in answer["offers"] if offer["pattern"] == NAME}
    assert offers[f"default~{NAME}"] > 0
