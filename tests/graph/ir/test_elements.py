"""Element types that NumPy lacks: packed as ONNX packs them, and run by ONNX Runtime as what they are."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.ir.elements import EXTENDED, NUMPY, onnx_name, pack, unpack
from collage_evo.graph.reference.reference import reference_outputs
from tests.support.models import parse_graph

VALUES = np.array([1.0, 0.0, -1.0, 1.0, 0.5, 1.0, 1.0], np.float32)
"""Seven, so that no number of elements to a byte divides it."""


def test_every_type_of_onnx_that_is_a_number_is_known() -> None:
    no_numbers = {"UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"}  # ONNX Runtime knows none of six bits
    kinds = {name: number for name, number in TensorProto.DataType.items() if name not in no_numbers}
    for name, number in kinds.items():
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(number)).name
        assert onnx_name(dtype) == name.lower()
        assert dtype in NUMPY or EXTENDED[dtype].number == number


@pytest.mark.parametrize("dtype", EXTENDED)
def test_elements_are_packed_as_onnx_packs_them(dtype: str) -> None:
    array = VALUES.astype(dtype)
    packed = pack(array)
    assert packed.tobytes() == numpy_helper.from_array(array).raw_data
    again = np.zeros_like(array)
    unpack(packed, again)
    assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", sorted(set(EXTENDED) - {"float4_e2m1fn"}))  # of which the library runs nothing
@pytest.mark.parametrize("shape", [(7,), (0,), ()])
def test_the_reference_takes_and_gives_them(dtype: str, shape: tuple[int, ...]) -> None:
    kind = EXTENDED[dtype].number
    value, body = f"{EXTENDED[dtype].name}{list(shape) or ''}", f"wide = Cast<to = 1>(x) y = Cast<to = {kind}>(wide)"
    model = parse_graph(f"g ({value} x) => ({value} y) {{ {body} }}", 25, 13)
    onnx.checker.check_model(model)
    x = np.resize(VALUES, shape).astype(dtype)
    (y,) = reference_outputs(model, {"x": x})
    assert y.dtype == x.dtype
    assert y.tobytes() == x.tobytes()
