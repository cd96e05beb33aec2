"""An answer that a library in float32 is clearly faster than at some size of the inputs is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx
import pytest

from collage_evo.accuracy.samples import Sample, read_samples, write_samples
from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.race import Race, Serving
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import SampleJob, Timed
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.sizes import ANSWER
from collage_evo.run.samples import SHAPES
from collage_evo.run.stages.samples import PARTS
from collage_evo.run.stages.sizes import ROUNDS, BySize, times_by_size
from tests.support.machine import FakeMachine
from tests.support.runs import fake_run
from tests.support.typed import not_none

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (int64[1, length] ids) => (int64[1, length] y) { y = Identity(ids) }'
)
LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512)
ORT, OPENVINO = "onnxruntime/default", "openvino/default"
NAMES = {ORT: "ONNX Runtime in float32", OPENVINO: "OpenVINO in float32"}
Pace = Callable[[int], float]
"""Milliseconds by the size of an input."""


def by_size(
    folder: Path,
    paces: dict[str, Pace],
    answer: str,
    noise: float = 0.0,
    seed: int = 0,
    peak_bytes: int = 0,
    running: list[int] | None = None,
    **given: object,
) -> BySize:
    """The times of a race that ``answer`` won, among contestants of these ``paces``; placements are called
    so. ``noise``: standard deviation of a round's logarithm. One of 0 ms crashes. ``running``: gets the number of
    processes at each job."""
    rng, processes = np.random.default_rng(seed), running if running is not None else []

    def timed(job: SampleJob) -> Timed | Failure:
        processes.append(len(machine.running))
        (sample,) = read_samples(Path(job.sample))
        ms = paces[Path(job.artifact).name.replace("-", "/", 1)](sample.feeds["ids"].shape[1])
        return Timed((ms * float(np.exp(rng.normal(0, noise))),)) if ms else Failure(Fault.CRASH, "killed by SIGSEGV")

    machine = FakeMachine(timed)
    run = fake_run(folder, machine, **{"data.source": "texts", **given})
    run.store.put(SHAPES, OpenShapes({"ids": (Dimension(1, 1), Dimension(4, 600 if given else 512, "length"))}))
    run.work.mkdir(exist_ok=True)
    samples = [Sample({"ids": np.zeros((1, length), np.int64)}) for length in LENGTHS]
    for number, name in enumerate(PARTS):
        write_samples(run.work / f"{name}.npz", samples[number::3])
    paths = {name: folder / name.replace("/", "-") for name in paces}
    baselines = [
        Baseline(name, *name.split("/"), paths[name], Outcome(9.0, error=1e-7), exact="int8" not in name)
        for name in paces
        if not name.startswith("placement")
    ]
    placements = {name: path for name, path in paths.items() if name.startswith("placement")}
    race = Race({name: (((5.0,),),) for name in paces}, {}, {answer: Serving(9.0, peak_bytes)})
    verdict = Verdict(answer, ORT, ITSELF, answer, ITSELF, race)
    model = cast(PreparedModel, SimpleNamespace(original=MODEL))
    return times_by_size(run, model, verdict, paths[answer], placements, baselines)


def linear(length: int) -> float:
    return 1.0 + 0.1 * length


def flat(length: int) -> float:
    return 5.0 + 0.04 * length


def test_the_table_has_both_ends_and_every_library(tmp_path: Path) -> None:
    paces = {"placement/0": lambda n: 0.5 * linear(n), ORT: linear, OPENVINO: linear}
    found = by_size(tmp_path, paces, "placement/0")
    assert found.table is not None
    assert [one.size for one in found.table.times] == [4, 8, 16, 32, 64, 128, 512], "the largest of all parts"
    assert found.table.times[-1].ms == pytest.approx({ANSWER: 26.1, NAMES[ORT]: 52.2, NAMES[OPENVINO]: 52.2})
    assert found.table.served.endswith("latency expected over the data: 8 samples, length 4 to 512")
    assert found.slow == {}


def test_the_largest_size_of_a_range_is_timed_if_no_sample_has_it(tmp_path: Path) -> None:
    ranges = {"model.shapes": {"length": "4..600"}}
    found = by_size(tmp_path, {"placement/0": flat, ORT: linear}, "placement/0", **ranges)
    largest = not_none(found.table).times[-1]
    assert (largest.size, largest.samples) == (600, 0)


def test_an_answer_that_is_slower_at_a_size_is_left_out_with_others_that_are(tmp_path: Path) -> None:
    paces = {
        "placement/0": lambda n: 0.5 * linear(n),
        "placement/1": lambda n: 0.6 * linear(n),
        "placement/2": lambda n: 0.9 * min(linear(n), flat(n)),
        ORT: linear,
        OPENVINO: flat,
    }
    found = by_size(tmp_path, paces, "placement/0", noise=0.01)
    assert set(found.slow) == {"placement/0", "placement/1"}
    assert next(iter(found.slow)) == "placement/0"
    assert found.slow["placement/0"].startswith("at length 512 OpenVINO in float32 is 1.0")
    assert by_size(tmp_path, paces, "placement/2", noise=0.01).slow == {}


def test_a_library_in_float32_stays_and_one_in_a_lower_precision_does_not(tmp_path: Path) -> None:
    paces = {ORT: linear, OPENVINO: flat, "onnxruntime/int8-dynamic": lambda n: 0.6 * linear(n)}
    assert by_size(tmp_path, paces, ORT).slow == {}
    found = by_size(tmp_path, paces, "onnxruntime/int8-dynamic")
    assert set(found.slow) == {"onnxruntime/int8-dynamic"}
    assert set(not_none(found.table).times[0].ms) == {ANSWER, *NAMES.values()}


def test_noise_leaves_no_answer_out(tmp_path: Path) -> None:
    paces = {"placement/0": lambda n: 0.99 * linear(n), ORT: linear, OPENVINO: linear}
    assert [by_size(tmp_path, paces, "placement/0", noise=0.1, seed=seed).slow for seed in range(8)] == [{}] * 8


def test_contestants_take_turns_in_processes_of_their_own(tmp_path: Path) -> None:
    jobs = list[tuple[str, str]]()

    def pace(name: str) -> Pace:
        return lambda length: jobs.append((name, str(length))) or 1.0

    by_size(tmp_path, {name: pace(name) for name in ("placement/0", ORT)}, "placement/0")
    assert len(jobs) == 2 * 7 * ROUNDS
    assert jobs[:2] == [(ORT, "4"), ("placement/0", "4")]
    assert jobs[14:16] == [("placement/0", "4"), (ORT, "4")], "the other way round in the next round"


@pytest.mark.parametrize(("peak_bytes", "together"), [(2**20, 3), (400 * 2**20, 1)])
def test_contestants_that_do_not_fit_into_memory_together_are_loaded_one_at_a_time(
    tmp_path: Path, peak_bytes: int, together: int
) -> None:
    running = list[int]()
    paces = dict.fromkeys(("placement/0", ORT, OPENVINO), linear)
    found = by_size(tmp_path, paces, "placement/0", peak_bytes=peak_bytes, running=running)
    assert max(running) == together
    assert len(running) == 3 * 7 * ROUNDS
    assert not_none(found.table).times[-1].ms == pytest.approx(dict.fromkeys((ANSWER, *NAMES.values()), 52.2))


def test_a_placement_that_fails_at_a_size_is_not_the_answer(tmp_path: Path) -> None:
    paces = {
        "placement/0": lambda n: 0.0 if n > 256 else 1.0,
        "placement/1": lambda n: 0.0 if n > 256 else 2.0 * linear(n),
        "placement/2": lambda n: 2.0 * linear(n),
        ORT: linear,
    }
    found = by_size(tmp_path, paces, "placement/0")
    assert set(found.slow) == {"placement/0"}
    assert found.slow["placement/0"].startswith("failed at length 512: crash: killed by SIGSEGV")
    found = by_size(tmp_path, paces, "placement/2")
    assert found.slow["placement/1"].startswith("failed at length 512")
    assert found.slow["placement/2"].endswith("ONNX Runtime in float32 is 2.00 times as fast")


def test_a_library_that_fails_at_a_size_is_no_rival_and_is_named_if_it_is_the_answer(tmp_path: Path) -> None:
    paces: dict[str, Pace] = {"placement/0": linear, ORT: lambda n: 0.0 if n > 256 else linear(n)}
    found = by_size(tmp_path, paces, "placement/0")
    assert [*not_none(found.table).times[-1].ms] == [ANSWER]
    assert not found.slow
    with pytest.raises(InputError, match=r"onnxruntime/default failed at length 512: .*SIGSEGV"):
        by_size(tmp_path, {ORT: paces[ORT]}, ORT)
