"""Reading what ncnn's converter wrote: which tensors lost their batch axis, and which may be read in place."""

from __future__ import annotations

import pytest

from collage_evo.backends.ncnn.plan import ConversionError, Plan, make_plan
from collage_evo.codec import from_json, to_json

CONV_THEN_ADD = """7767517
4 5
Input                    in0                      0 1 in0
Split                    splitncnn_0              1 2 in0 1 2
{first}                  first                    1 1 2 3 0=8 1=3
{second}                 second                   1 1 1 4
BinaryOp                 add_0                    2 1 3 4 out0 0=0
"""
SCRIPT = """
            ex.input("in0", ncnn.Mat(in0.numpy(), batch_index={input}).clone())
            _, out0 = ex.extract("out0")
            out.append(torch.from_numpy(out0.numpy(batch_index={output})))
"""


def plan(first="Convolution", second="Pooling", source=0, result=0, shapes=((1, 3, 9, 9), (1, 8, 9, 9))) -> Plan:
    param = CONV_THEN_ADD.format(first=first, second=second)
    script = SCRIPT.format(input=source, output=result)
    return make_plan(param, script, shapes, 1, lambda kind: kind != "Mystery")


def test_layers_that_only_read_share_the_callers_memory():
    assert plan().shared_inputs == (True,)


def test_a_layer_that_may_work_in_place_gets_a_copy_even_behind_a_split():
    assert plan(second="ReLU").shared_inputs == (False,)


def test_each_tensor_has_a_batch_axis_of_its_own_accord():
    assert plan(source=0, result=233).batched_inputs == (True,)
    assert plan(source=0, result=233).batched_outputs == (False,)


def test_a_plan_survives_its_file():
    assert from_json(to_json(plan()), Plan) == plan()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": "Mystery"}, "no ncnn layer for Mystery"),
        ({"source": 1}, "the batch axis is 1"),
        ({"source": 233, "shapes": ((1, 1, 3, 9, 9), (1, 8, 9, 9))}, "in0 has 5 axes"),
        ({"shapes": ((1, 3, 9, 9),) * 3}, "lost out1"),
        ({"shapes": ((2, 3, 9, 9), (2, 8, 9, 9))}, r"in0 has the shape \[2, 3, 9, 9\]: .* of one sample"),
        ({"shapes": ((1, 3, 9, 9), (4, 8, 9, 9))}, r"out0 has the shape \[4, 8, 9, 9\]"),
        ({"shapes": ((0, 3, 9, 9), (0, 8, 9, 9))}, "of one sample"),
    ],
)
def test_what_is_not_the_model_is_refused(changes, message):
    with pytest.raises(ConversionError, match=message):
        plan(**changes)
