"""Each single backend: the likely fastest first; who is far behind is given up after a run, and says so."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.baselines import (
    Baseline,
    best_single,
    measure_baselines,
    read_baselines,
    why_needless,
    write_baselines,
)
from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import DEFAULT, Arithmetic, Variant
from collage_evo.errors import InputError, UnavailableError
from collage_evo.fitness.jobs import Measured, WholeJob
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.hardware.processor import Processor
from collage_evo.hardware.target import Target
from collage_evo.policy import DEFAULT_POLICY
from collage_evo.pruning import EXACT_LIBRARY
from collage_evo.run.stages.excluded_engines import excluded_engines
from collage_evo.runtime.timing import TimingSettings
from collage_evo_cuda.libraries.torch import Torch
from tests.fitness.helpers import make_setting
from tests.support.machine import FakeMachine, setting_of

MANY = 50_000
"""Runs of a tiny model that take much longer than it takes to see that it is too slow."""
TIMING = TimingSettings(1, 5, 0.001, 5.0)


def test_what_another_machine_measured_is_not_taken_over(tmp_path: Path) -> None:
    here, saved = Target(), tmp_path / "baselines.json"
    found = (Baseline("a", "a", "default", tmp_path / "a.collage", Outcome(1.0, n=1), here.digest),)
    write_baselines(saved, found)
    assert read_baselines(saved, tmp_path, here) == found
    assert not read_baselines(saved, tmp_path, replace(here, threads=2))


def machine(
    error: float = 1e-6,
    target: Target = Target(),  # noqa: B008
    limits: Limits = Limits(1e-3, budget=0.02, front=0.1),  # noqa: B008
    **times_ms: float,
) -> FakeMachine:
    """A machine on which each backend takes its time (ms), once if that is too long, or is never done (not a number);
    the rest cannot run."""

    def answer(job: WholeJob) -> Measured | Failure:
        if job.backend not in times_ms:
            return Failure(Fault.BUILD, "no such operator")
        ms = times_ms[job.backend]
        if math.isnan(ms):
            return Failure(Fault.HANG, "no answer")
        if math.isinf(ms):
            return Failure(Fault.FAR_BEHIND, "given up during its first run")
        return Measured((ms,) * (1 if ms > job.give_up_ms else TIMING.min_runs), error, 1e-6)

    return FakeMachine(answer, setting_of(target=target, limits=limits))


def backend(name: str, runs_any_model: bool = False, *variants: Variant, usual: Variant = DEFAULT) -> Backend:
    fake = SimpleNamespace(
        name=name,
        runs_any_model=lambda variant: runs_any_model,
        variants=variants or (DEFAULT,),
        declines=lambda variant: "",
        like_defaults=lambda device: usual,
    )
    return cast(Backend, fake)


def measured(**times_ms: float) -> tuple[list[WholeJob], tuple[Baseline, ...]]:
    here = machine(**times_ms)
    backends = [backend("a"), backend("b"), backend("general", runs_any_model=True), backend("none")]
    return here.jobs, measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None)


def test_who_runs_most_models_well_is_first_and_the_others_are_given_up_against_the_best() -> None:
    jobs, found = measured(general=10.0, a=5.0, b=20.0)
    assert [job.backend for job in jobs] == ["general", "a", "b", "none"]
    assert [job.give_up_ms for job in jobs] == [math.inf, 30.0, 15.0, 15.0]
    latencies = {one.name: one.outcome.latency_ms for one in found}
    assert latencies == {"general": 10.0, "a": 5.0, "b": 20.0, "none": None}
    reasons = {one.name: one.outcome.reason for one in found}
    assert reasons["general"] == reasons["a"] == ""
    assert reasons["b"] == "far behind: given up after 1 run, 4.0 times as slow as the best"
    assert reasons["none"] == "build: no such operator"
    assert best_single(found).name == "a"


def test_who_has_no_time_has_no_artifact(tmp_path: Path) -> None:
    names = ("general.collage", "none.collage")
    for name in names:  # written before it is checked
        (tmp_path / name).mkdir()
    here = machine(general=1.0)
    measure_baselines([backend("none"), backend("general", True)], tmp_path, here, TIMING, lambda baseline: None)
    assert [(tmp_path / name).exists() for name in names] == [True, False]


def test_a_backend_far_behind_is_not_tried_in_another_variant() -> None:
    here = machine(quick=1.0, slow=9.0, hopeless=11.0, endless=math.inf)
    both = (DEFAULT, Variant("other"))
    backends = [backend(name, name == "quick", *both) for name in ("quick", "slow", "hopeless", "endless")]
    found = measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None)
    assert [f"{job.backend} {job.variant}" for job in here.jobs] == [
        *("quick default", "quick other", "slow default", "slow other", "hopeless default", "endless default")
    ]
    reasons = {one.name: one.outcome.reason for one in found}
    assert reasons["hopeless/other"] == "far behind: hopeless is too, so this was not tried"
    assert reasons["endless/other"] == "far behind: endless is too, so this was not tried"
    assert best_single(found).name == "quick"


HOST, DEVICE, SLOW = Variant("host"), Variant("device", device="cuda"), Variant("slow", last_resort=True)
HALF = Variant("half", Arithmetic.BFLOAT16)
LOWER = [
    Variant(name, arithmetic)
    for name, arithmetic in {
        "tf32": Arithmetic.TF32,
        "f16": Arithmetic.FLOAT16,
        "other": Arithmetic.BFLOAT16,
    }.items()
]


@pytest.mark.parametrize(
    ("times_ms", "target", "backends", "tried"),
    [
        (  # the first answer does not wait for a lower precision, which is the default of the others
            {"first": 1.0, "second": 1.0, "third": 1.0},
            Target(),
            [
                backend("first", True, HALF, DEFAULT, usual=HALF),
                backend("second", True, DEFAULT, HALF, usual=HALF),
                backend("third", True),
            ],
            ["first default", "third default", "first half", "second half", "second default"],
        ),
        (  # one that may compile for long begins in the fastest arithmetic of the others
            {"exact": 3.0, "tf32": 2.0, "f16": 1.0, "late": 1.0},
            Target(),
            [
                backend("late", False, DEFAULT, *LOWER),
                *(backend(one.name, True, one) for one in LOWER[:2]),
                backend("exact", True),
            ],
            ["exact default", "tf32 tf32", "f16 f16", "late f16", "late tf32", "late default", "late other"],
        ),
        (  # the device before the host, and neither is given up for the other
            {"usual": 1.0, "both": math.inf},
            Target("cuda"),
            [backend(name, name == "usual", HOST, DEVICE) for name in ("usual", "both")],
            ["usual device", "usual host", "both device", "both host"],
        ),
        # a last resort runs where nothing else is right
        (
            {"right": 1.0},
            Target(),
            [backend("resort", True, DEFAULT, SLOW), backend("right")],
            ["resort default", "right default"],
        ),
        (
            {},
            Target(),
            [backend("resort", True, DEFAULT, SLOW), backend("right")],
            ["resort default", "right default", "resort slow"],
        ),
    ],
)
def test_the_order_of_backends_and_variants(
    times_ms: dict[str, float], target: Target, backends: list[Backend], tried: list[str]
) -> None:
    here = machine(target=target, **times_ms)
    measure_baselines(backends, Path("baselines"), here, TIMING, lambda found: None)
    assert [f"{job.backend} {job.variant}" for job in here.jobs] == tried


def test_a_variant_that_is_known_to_be_far_says_nothing_of_the_others() -> None:
    here = machine(quick=1.0)
    backends, known = [backend("quick", True, DEFAULT, Variant("other"))], Failure(Fault.KNOWN, "it took 1.9 times")
    far = {("quick", "default"): known}
    found = measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None, far=far)
    assert [job.variant for job in here.jobs] == ["other"]
    assert found[0].outcome.failure == known


@pytest.mark.parametrize(
    ("general", "times_ms", "seconds", "tried", "late"),
    [
        (["first", "general"], {"first": 1.0, "general": 2.0, "slow": 1.0}, 0.0, ["first", "general"], ["slow"]),
        (["first"], {"first": 10.0, "slow": 10.0}, 10.0, ["first", "slow"], []),
        (["first"], {"first": 1e3, "slow": 1e3}, 10.0, ["first"], ["slow"]),  # with time for a few runs only
        (["cannot"], {"slow": 1.0}, 0.0, ["cannot", "slow"], []),  # nothing ran yet
    ],
)
def test_who_may_compile_for_long_is_not_begun_with_little_time(
    general: list[str], times_ms: dict[str, float], seconds: float, tried: list[str], late: list[str]
) -> None:
    here = machine(**times_ms)
    backends = [backend("slow"), *(backend(name, True) for name in general)]
    found = measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None, seconds=seconds)
    assert [job.backend for job in here.jobs] == tried
    assert [one.name for one in found if one.out_of_time] == late
    assert not late or "the time for baselines was over" in found[-1].outcome.reason


def test_who_compiles_beyond_that_time_is_ended_and_takes_no_part() -> None:
    here = machine(first=1.0, endless=math.nan)
    backends = [backend("endless"), backend("first", True)]
    found = measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None, seconds=5.0)
    assert [one.name for one in found if one.out_of_time] == ["endless"]
    first, endless = here.timeouts_s
    assert first == here.timeout_s
    assert 4.0 < endless <= 5.0


@pytest.mark.parametrize(
    ("lower", "budget", "tried"),
    [
        ((DEFAULT, HALF), 0.02, ["usual default", "usual half"]),
        ((DEFAULT, HALF), 0.0, ["usual default", "usual other", "exact default"]),
        ((DEFAULT,), 0.02, ["usual default", "usual other", "exact default"]),
    ],
)
def test_float32_alone_has_less_time_where_a_lower_precision_may_be_faster(
    lower: tuple[Variant, ...], budget: float, tried: list[str]
) -> None:
    here = machine(limits=Limits(1e-3, budget, front=2 * budget), usual=20.0, exact=20.0)
    backends = [backend("usual", True, *lower, Variant("other")), backend("exact", False)]
    # 150 runs take 3 s
    found = measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None, seconds=8.0)
    assert [f"{job.backend} {job.variant}" for job in here.jobs] == tried
    left_out = {one.outcome.failure.rule for one in found if one.out_of_time and one.outcome.failure}
    assert left_out == ({EXACT_LIBRARY.name} if len(tried) < 3 else set())


def test_a_run_with_little_time_measures_the_first_that_runs_and_ends_the_others() -> None:
    here, backends = machine(first=1.0, next=1.0), [backend("first", True), backend("next", True)]
    for most_s, tried in ((0.0, ["first"]), (5.0, ["first", "next"])):
        here.jobs.clear()
        found = measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None, most_s=most_s)
        assert [job.backend for job in here.jobs] == tried
        assert [one.out_of_time for one in found] == [False, len(tried) == 1]
    assert here.timeouts_s[-1] <= 5.0


@pytest.mark.parametrize(
    ("times_ms", "most_s", "error", "said"),
    [
        ({}, math.inf, UnavailableError, "general: build: no such operator; a: build: .*: check the model"),
        ({"general": math.nan}, math.inf, UnavailableError, r"general: hung: .*: fitness\.timeout_s allows more"),
        ({"general": math.nan}, 0.0, InputError, "^the time was over before a backend ran .*: give more time"),
    ],
)
def test_where_none_runs_the_model_each_says_why_unless_there_was_no_time(
    times_ms: dict[str, float], most_s: float, error: type[Exception], said: str
) -> None:
    backends = [backend("a"), backend("general", True)]
    found = measure_baselines(
        backends, Path("baselines"), machine(**times_ms), TIMING, lambda baseline: None, most_s=most_s
    )
    with pytest.raises(error, match=said):
        best_single(found)


def test_libraries_that_run_most_models_say_so() -> None:
    assert get_backend("onnxruntime").runs_any_model(DEFAULT)
    assert not get_backend("tvm").runs_any_model(DEFAULT)
    torch = Torch()
    assert {one.name for one in torch.variants if torch.runs_any_model(one)} == {
        f"cuda-eager{end}" for end in ("", "-tf32", "-bf16", "-f16")
    }, "others compile"


def test_a_whole_model_that_is_too_slow_is_timed_no_further(tmp_path: Path) -> None:
    times = []
    with Sandbox(make_setting(tmp_path), (), 2**30) as sandbox:
        for give_up_ms in (math.inf, 1e-9):
            settings = TimingSettings(1, MANY, 0.0, 60.0)
            job = WholeJob("onnxruntime", "default", str(tmp_path / "whole.collage"), settings, give_up_ms)
            times.append(len(sandbox.call(job, 60.0).times_ms))
    assert times[0] == MANY > times[1]


def test_each_result_is_known_before_the_next_begins_those_that_run_most_models_first() -> None:
    here = machine(usual=2.0, odd=1.0)
    done: list[tuple[int, list[str]]] = []
    measure_baselines(
        [backend("odd"), backend("usual", runs_any_model=True)],
        Path("baselines"),
        here,
        TIMING,
        lambda found: done.append((len(here.jobs), [baseline.name for baseline in found])),
    )
    assert done == [(1, ["usual"]), (2, ["usual", "odd"])]


@pytest.mark.parametrize(
    ("error", "most_s", "best"),
    [(0.01, math.inf, "low/half"), (0.05, math.inf, "slow"), (0.05, 0.0, "slow")],
    ids=["within", "beyond", "no time but for a first answer"],
)
def test_a_lower_precision_is_the_best_where_it_keeps_the_budget_and_never_gives_up_those_in_float32(
    error: float, most_s: float, best: str
) -> None:
    here, backends = machine(error, low=1.0, slow=10.0), [backend("low", True, HALF), backend("slow")]
    found = measure_baselines(backends, Path("baselines"), here, TIMING, lambda baseline: None, most_s=most_s)
    assert [one.outcome.ok for one in found] == [True, True], "float32 is timed to the end"
    assert best_single(found, budget=0.02).name == best
    assert best_single(found).name == "slow", "by default of those in float32"


@pytest.mark.parametrize(
    ("bfloat16_ms", "error", "features", "tried"),
    [
        (4.0, 0.01, {"avx512_fp16", "amx_bf16"}, False),
        (6.0, 0.01, {"avx512_fp16", "amx_bf16"}, True),
        (4.0, 0.019, {"avx512_fp16", "amx_bf16"}, True),
        (4.0, 0.01, {"avx512_fp16", "amx_bf16", "amx_fp16"}, True),
        (None, None, {"avx512_fp16"}, True),
    ],
    ids=["faster than float16 can be", "near", "too near to the budget", "matrices in float16", "not measured"],
)
def test_float16_is_not_tried_where_bfloat16_is_faster_than_it_can_be(
    bfloat16_ms: float | None, error: float | None, features: set[str], tried: bool
) -> None:
    openvino, machine = get_backend("openvino"), Processor("x86_64", "some", frozenset(features))
    known = [
        Baseline("openvino", "openvino", "default", Path("a"), Outcome(10.0, error=0.0)),
        Baseline("openvino/bf16", "openvino", "bf16", Path("b"), Outcome(bfloat16_ms, error=error), exact=False),
        Baseline("onnxruntime", "onnxruntime", "default", Path("c"), Outcome(90.0, error=0.0)),
    ]
    why = why_needless(known, openvino, openvino.variant("f16"), 0.018, machine)
    assert (why is None) == tried
    assert why_needless(known, openvino, openvino.variant("bf16"), 0.018, machine) is None
    if why is not None:
        needless = Baseline("openvino/f16", "openvino", "f16", Path("d"), Outcome.unfit(why), exact=False)
        excluded = excluded_engines([*known, needless], [openvino], DEFAULT_POLICY, 0.02, print)
        assert excluded["openvino", "f16"] == why
