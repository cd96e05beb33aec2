"""Which engines are not tried on parts: slow precisions, and what stands on an engine that is far behind."""

from pathlib import Path

from collage_evo.answer.baselines import Baseline
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import Variant
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.policy import DEFAULT_POLICY
from collage_evo.pruning import BATCH_DEPENDENT, SLOW_ENGINE
from collage_evo.report.words import format_ratio
from collage_evo.run.stages.excluded_engines import batch_dependent, excluded_engines
from tests.support.standing import StandingBackend

Engine = tuple[str, str]
SLOWER = DEFAULT_POLICY.precision_slower


def found_with(times: dict[Engine, float], error: float = 0.01) -> tuple[set[Engine], list[str]]:
    """What is excluded where single backends take so many ms, in lower precisions with ``error``, and messages."""
    said: list[str] = []
    alone = [
        Baseline(variant, name, variant, Path(name), Outcome(ms, error=error), exact=variant == "default")
        for (name, variant), ms in times.items()
    ]
    backends = (get_backend("openvino"), get_backend("onnxruntime"), StandingBackend())
    return set(excluded_engines(alone, backends, DEFAULT_POLICY, 0.02, said.append)), said


def engines_below(found: set[Engine]) -> set[Engine]:
    """What the variants of the standing backend among ``found`` stand on; all of one engine, or none, are there."""
    standing = StandingBackend()
    below: dict[Engine, set[bool]] = {}
    for variant in standing.variants:
        engine = standing.stands_on(variant)
        below.setdefault(engine, set()).add((standing.name, variant.name) in found)
    assert all(len(told) == 1 for told in below.values())
    return {engine for engine, told in below.items() if told == {True}}


OPENVINO, BF16, ONNXRUNTIME = ("openvino", "default"), ("openvino", "bf16"), ("onnxruntime", "default")
CAST = ("openvino", "bf16-cast")
NOT_RUN = {("ncnn", "default"), ("tvm", "default")}


def test_nothing_stands_on_what_is_far_behind_or_does_not_run_the_model_alone() -> None:
    found, said = found_with({OPENVINO: 1.0, BF16: 1.0, ONNXRUNTIME: SLOW_ENGINE.number * 1.01})
    assert engines_below(found) == {ONNXRUNTIME, *NOT_RUN}
    assert not found & {OPENVINO, BF16, ONNXRUNTIME}, "they are tried themselves"
    behind = " and ".join(f"{name} in float32" for name in ("ONNX Runtime", "ncnn", "TVM"))
    assert said == [f"standing does not use {behind}: the baseline is far behind or fails"]
    assert engines_below(found_with({OPENVINO: 1.0, BF16: 1.0, ONNXRUNTIME: SLOW_ENGINE.number * 0.99})[0]) == NOT_RUN


def test_a_precision_that_one_time_each_makes_slower_by_a_third_is_still_tried() -> None:
    """Bfloat16 was seen to take 3.4 and 2.2 ms within minutes."""
    assert BF16 not in found_with({OPENVINO: 1.0, BF16: 1.35, ONNXRUNTIME: 1.0})[0]


def test_a_precision_that_is_slower_than_float32_is_left_out_with_what_stands_on_it() -> None:
    found, said = found_with({OPENVINO: 1.0, BF16: SLOWER * 1.01, ONNXRUNTIME: 1.0})
    assert BF16 in found
    assert engines_below(found) == {BF16, *NOT_RUN}
    told = f"OpenVINO in bfloat16 takes {format_ratio(SLOWER * 1.01)} times as long as in float32 here"
    assert said[0].startswith(told)
    assert BF16 not in found_with({OPENVINO: 1.0, BF16: SLOWER * 0.99, ONNXRUNTIME: 1.0})[0]


def test_what_was_not_tried_alone_for_want_of_time_is_not_tried_on_parts() -> None:
    late = Outcome.unfit(Failure(Fault.NO_TIME, "not tried"))
    alone = [
        Baseline("openvino", "openvino", "default", Path("a"), Outcome(1.0, error=0.0)),
        Baseline("openvino/bf16", "openvino", "bf16", Path("b"), late, exact=False),
        Baseline("onnxruntime", "onnxruntime", "default", Path("c"), late),
    ]

    class WithDevice(type(get_backend("onnxruntime"))):  # type: ignore[misc]
        variants = (*get_backend("onnxruntime").variants, Variant("npu", device="npu"))

    openvino, onnxruntime = get_backend("openvino"), WithDevice()
    found = excluded_engines(alone, (openvino, onnxruntime), DEFAULT_POLICY, 0.02, print)
    assert {name for backend, name in found if backend == "onnxruntime"} == {
        variant.name for variant in onnxruntime.variants if variant.on_host
    }, "what does not run on the target was not left out for time"
    of_bf16 = {variant.name for variant in openvino.variants if variant.base == "bf16"}
    assert {name for backend, name in found if backend == "openvino"} == of_bf16 | {"bf16-cast"}
    assert len(of_bf16) > 1, "int8 beside bfloat16 among them"


def test_bfloat16_is_tried_beside_float32_where_alone_it_uses_up_much_of_the_budget_of_2_percent() -> None:
    times = {OPENVINO: 1.0, BF16: 0.6, ONNXRUNTIME: 1.0}
    near, said = found_with(times, error=0.021)
    assert (BF16 in near, CAST in near) == (True, False)
    assert any("OpenVINO in bfloat16 as baseline has error 0.021" in line for line in said)
    both, said = found_with(times, error=0.017)
    assert not {BF16, CAST} & both, "there is room for some operators in int8"
    assert any("operators in bfloat16 and in float32 are tried in one piece" in line for line in said)
    far, _ = found_with(times, error=0.009)
    assert (BF16 in far, CAST in far) == (False, True)
    assert CAST in found_with({OPENVINO: 1.0, BF16: SLOWER * 1.01, ONNXRUNTIME: 1.0}, error=0.021)[0], "it is slow"
    assert CAST in found_with({OPENVINO: 1.0, ONNXRUNTIME: 1.0})[0], "nothing is known of it"
    assert BF16 not in engines_below(near), "others may stand on it all the same"


def test_what_computes_a_scale_of_all_rows_is_no_engine_of_a_batch_invariant_answer() -> None:
    found = batch_dependent((get_backend("openvino"), get_backend("onnxruntime")))
    assert list(found) == [("onnxruntime", "int8-dynamic")]
    assert found["onnxruntime", "int8-dynamic"].rule == BATCH_DEPENDENT.name
