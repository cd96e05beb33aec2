"""Small models on which inference libraries were reported, or found here, to give other numbers than ONNX asks for.

Each was rebuilt from its report; inputs reach the numbers that random ones do not: ties, zeros, the smallest and the
largest numbers, equal sizes.
"""

# ruff: noqa: E501 - a model in ONNX's text form is read more easily in one line

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser


@dataclass(frozen=True)
class Report:
    """A model in ONNX's text form, inputs that show the fault, and where it was reported (empty: found here)."""

    name: str
    graph: str
    feeds: Mapping[str, np.ndarray]
    opset: int = 18
    source: str = ""

    def model(self) -> onnx.ModelProto:
        text = f'<ir_version: 9, opset_import: ["" : {self.opset}]> g {self.graph}'
        return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))


_RNG = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0, around: float = 0.0) -> np.ndarray:
    return (_RNG.standard_normal(shape) * scale + around).astype(np.float32)


def ties(*shape: int) -> np.ndarray:
    return _RNG.integers(0, 3, shape).astype(np.float32)


def line(low: float, high: float, count: int = 64) -> np.ndarray:
    return np.linspace(low, high, count).astype(np.float32)


def powers(low: float, high: float, count: int = 64) -> np.ndarray:
    return np.logspace(low, high, count).astype(np.float32)


def whole(low: int, high: int, *shape: int) -> np.ndarray:
    return _RNG.integers(low, high, shape)


EDGES = np.array([1, 5, -3, 1e-40, -1e-40, 0, -0.0, 2], np.float32)
_X64 = "(float[64] x) => (float[64] y)"
_X416 = "(float[4, 16] x) => (float[4, 16] y)"
_IMAGE = "(float[1, 2, 8, 8] x) => (float[1, 2, h, w] y)"


def _of_one(name: str, body: str, values: np.ndarray, opset: int = 18, source: str = "", head: str = _X64) -> Report:
    return Report(name, f"{head} {{ {body} }}", {"x": values}, opset, source)


def _numbers() -> list[Report]:
    return [
        _of_one("log of softplus", "s = Softplus(x) y = Log(s)", line(-80, -10), source="openvino #35931"),
        _of_one("erf over x", "e = Erf(x) y = Div(e, x)", powers(-12, 1), source="openvino #35936"),
        _of_one("tanh over x", "e = Tanh(x) y = Div(e, x)", powers(-12, 1)),
        _of_one("log of exp", "e = Exp(x) y = Log(e)", line(-100, 88)),
        _of_one("log of sigmoid", "e = Sigmoid(x) y = Log(e)", line(-87, 20)),
        _of_one("log of softmax", "e = Softmax(x) y = Log(e)", normal(4, 16, scale=20), head=_X416),
        _of_one("log softmax of large numbers", "y = LogSoftmax(x)", normal(4, 16, scale=50), head=_X416),
        _of_one("softmax of large numbers", "y = Softmax(x)", normal(4, 16, scale=100), head=_X416),
        *(
            _of_one(
                f"norm {p} of {scale:g}", f"y = LpNormalization<p = {p}>(x)", normal(4, 16, scale=scale), head=_X416
            )
            for p in (1, 2)
            for scale in (1e-7, 0.0)
        ),
        *(
            Report(
                f"layer normalisation around {around:g}",
                "(float[4, 64] x, float[64] s, float[64] b) => (float[4, 64] y) { y = LayerNormalization(x, s, b) }",
                {"x": normal(4, 64, around=around), "s": np.ones(64, np.float32), "b": np.zeros(64, np.float32)},
            )
            for around in (1e3, 1e4)
        ),
        Report(
            "instance normalisation around 1000",
            "(float[1, 4, 64] x, float[4] s, float[4] b) => (float[1, 4, 64] y) { y = InstanceNormalization(x, s, b) }",
            {"x": normal(1, 4, 64, around=1e3), "s": np.ones(4, np.float32), "b": np.zeros(4, np.float32)},
        ),
        *(
            _of_one(f"gelu by {kind}", f"y = {body}", line(-12, 12), 20)
            for kind, body in (("erf", "Gelu(x)"), ("tanh", 'Gelu<approximate = "tanh">(x)'))
        ),
        *(
            _of_one(op, f"y = {op}(x)", line(low, high))
            for op, low, high in (
                *(
                    ("Mish", -100, 100),
                    ("Elu<alpha = 0.3>", -1e-4, 1e-4),
                    ("Celu<alpha = 0.3>", -5, 5),
                    ("HardSwish", -5, 5),
                ),
                *(
                    ("Selu", -5, 5),
                    ("Shrink<lambd = 0.5, bias = 0.2>", -5, 5),
                    ("ThresholdedRelu<alpha = 0.5>", -5, 5),
                ),
                *(
                    ("Sin", -1e5, 1e5),
                    ("Cos", -1e4, 1e4),
                    ("Asinh", -1e4, 1e4),
                    ("Softsign", -1e4, 1e4),
                    ("Atan", -1e5, 1e5),
                ),
                *(
                    ("Round", -16, 15.5),
                    ("Floor", -8, 7.75),
                    ("Ceil", -8, 7.75),
                    ("Softplus", -100, 100),
                    ("Erf", -6, 6),
                ),
            )
        ),
        _of_one("sign of the smallest", "y = Sign(x)", EDGES, head="(float[8] x) => (float[8] y)"),
        _of_one("cast to whole numbers", "k = Cast<to = 6>(x) y = Cast<to = 1>(k)", line(-8, 7.75)),
        _of_one("cast to truth", "k = Cast<to = 9>(x) y = Cast<to = 1>(k)", line(-8, 7.75)),
        _of_one("cast to bytes", "k = Cast<to = 2>(x) y = Cast<to = 1>(k)", np.arange(64, dtype=np.float32) * 4),
        *(
            Report(op, f"(float[64] x, float[64] z) => (float[64] y) {{ y = {op}(x, z) }}", {"x": x, "z": z})
            for op, x, z in (
                ("Mod<fmod = 1>", normal(64, scale=9), normal(64, scale=3)),
                ("Pow", normal(64), whole(-3, 4, 64).astype(np.float32)),
                ("Div", normal(64), normal(64, scale=1e-30)),
            )
        ),
        _of_one(
            "sums of large exponentials",
            "y = ReduceLogSumExp<axes = [1], keepdims = 0>(x)",
            normal(4, 64, scale=100),
            17,
            head="(float[4, 64] x) => (float[4] y)",
        ),
        _of_one(
            "sums of small squares",
            "axes = Constant<value_ints = [1]>() y = ReduceSumSquare<keepdims = 0>(x, axes)",
            normal(4, 4, scale=1e-12),
            head="(float[4, 4] x) => (float[4] y)",
        ),
    ]


def _orders() -> list[Report]:
    corners = _RNG.random((1, 12, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 0.3], axis=2)
    return [
        *(
            Report(
                f"topk of equal values, largest {largest}",
                f"(float[4, 16] x) => (float[4, 5] v, int64[4, 5] i) <int64[1] k = {{5}}> {{ v, i = TopK<largest = {largest}>(x, k) }}",
                {"x": ties(4, 16)},
                source="openvino: order of equal values",
            )
            for largest in (0, 1)
        ),
        *(
            Report(
                f"{op} of equal values, last {last}",
                f"(float[4, 16] x) => (int64[4] y) {{ y = {op}<axis = -1, keepdims = 0, select_last_index = {last}>(x) }}",
                {"x": ties(4, 16)},
            )
            for op in ("ArgMax", "ArgMin")
            for last in (0, 1)
        ),
        *(
            Report(
                f"boxes: {name}",
                f"(float[1, 12, 4] b, float[1, 2, 12] s) => (int64[n, 3] y) <int64 m = {{5}}, float t = {{{limit}}}> {{ y = NonMaxSuppression(b, s, m, t) }}",
                {"b": boxes, "s": scores},
            )
            for name, limit, scores in (
                ("nothing may overlap", 0.0, normal(1, 2, 12)),
                ("half may", 0.5, normal(1, 2, 12)),
                ("equal scores", 0.5, ties(1, 2, 12)),
            )
        ),
        _of_one("hardmax of equal values", "y = Hardmax(x)", ties(4, 16), head=_X416),
        _of_one(
            "unique values", "y = Unique(x)", ties(8), source="openvino #31004", head="(float[8] x) => (float[n] y)"
        ),
        Report(
            "places of what is not zero", "(float[4, 4] x) => (int64[2, n] y) { y = NonZero(x) }", {"x": ties(4, 4)}
        ),
    ]


def _places() -> list[Report]:
    head = "(float[1, 4, 5, 5] x, float[4, 2, 3, 3] w) => (float[1, 2, h, w2] y)"
    return [
        *(
            Report(
                f"resize {mode} {how} to {size}",
                f'{_IMAGE} <int64[4] s = {{1, 2, {size}}}> {{ y = Resize<mode = "{mode}", coordinate_transformation_mode = "{how}">(x, , , s) }}',
                {"x": normal(1, 2, 8, 8)},
                19,
            )
            for mode in ("nearest", "linear", "cubic")
            for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
            for size in ("7, 5", "16, 16", "3, 1")
        ),
        *(
            Report(
                f"resize nearest {rounding}",
                f'{_IMAGE} <float[4] s = {{1, 1, 1.5, 2.5}}> {{ y = Resize<mode = "nearest", nearest_mode = "{rounding}">(x, , s) }}',
                {"x": normal(1, 2, 8, 8)},
                19,
            )
            for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        ),
        Report(
            "resize cubic antialias",
            f'{_IMAGE} <float[4] s = {{1, 1, 0.6, 0.6}}> {{ c = Neg(x) y = Resize<mode = "cubic", antialias = 1>(c, , s) }}',
            {"x": normal(1, 2, 8, 8)},
            19,
        ),
        *(
            Report(
                f"grid sample {mode} {padding}",
                f'(float[1, 2, 8, 8] x, float[1, 4, 4, 2] g) => (float[1, 2, 4, 4] y) {{ y = GridSample<mode = "{mode}", padding_mode = "{padding}", align_corners = {corners}>(x, g) }}',
                {"x": normal(1, 2, 8, 8), "g": (whole(-10, 11, 1, 4, 4, 2) / 8).astype(np.float32)},
                20,
            )
            for mode, padding, corners in (
                ("linear", "reflection", 0),
                ("cubic", "border", 1),
                ("nearest", "zeros", 0),
            )
        ),
        *(
            _of_one(name, f"y = {body}", normal(1, 2, 8, 8, around=-3), opset, head=_IMAGE)
            for name, body, opset in (
                (
                    "max pool",
                    "MaxPool<kernel_shape = [3, 3], strides = [2, 2], dilations = [2, 2], ceil_mode = 1, pads = [1, 1, 1, 1]>(x)",
                    18,
                ),
                (
                    "average pool",
                    "AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1, pads = [1, 1, 1, 1]>(x)",
                    18,
                ),
                ("average pool, dilated", "AveragePool<kernel_shape = [2, 2], dilations = [2, 2]>(x)", 19),
                ("norm pool", "LpPool<kernel_shape = [2, 2], p = 3>(x)", 18),
            )
        ),
        *(
            Report(
                f"pad {name}",
                f'{_IMAGE} <int64[8] p = {{{pads}}}> {{ y = Pad<mode = "{mode}">(x, p) }}',
                {"x": normal(1, 2, 8, 8)},
                19,
            )
            for name, mode, pads in (
                *(("reflect", "reflect", "0, 0, 2, 1, 0, 0, 1, 2"), ("wrap", "wrap", "0, 0, 2, 1, 0, 0, 1, 2")),
                *(("cut", "constant", "0, 0, -1, 1, 0, 0, 1, -2"), ("edge", "edge", "0, 0, 2, 1, 0, 0, 1, 2")),
            )
        ),
        Report(
            "pad before an average",
            f"{_IMAGE} <int64[8] p = {{0, 0, 1, 1, 0, 0, 1, 1}}> {{ a = Pad(x, p) y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], count_include_pad = 0>(a) }}",
            {"x": normal(1, 2, 8, 8)},
            source="onnxruntime #22177",
        ),
        Report(
            "pad by a value before a maximum",
            f"{_IMAGE} <int64[8] p = {{0, 0, 1, 1, 0, 0, 1, 1}}, float v = {{2.0}}> {{ a = Pad(x, p, v) y = MaxPool<kernel_shape = [3, 3]>(a) }}",
            {"x": normal(1, 2, 8, 8)},
        ),
        *(
            Report(
                f"transposed convolution, {name}",
                f"{head} {{ y = ConvTranspose<{attributes}>(x, w) }}",
                {"x": normal(1, 4, 5, 5), "w": normal(4, 2, 3, 3)},
                source="openvino #33397",
            )
            for name, attributes in (
                ("output_padding", "strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 0]"),
                ("SAME_UPPER", 'strides = [2, 2], auto_pad = "SAME_UPPER"'),
                ("SAME_LOWER", 'strides = [2, 2], auto_pad = "SAME_LOWER"'),
                ("dilations", "dilations = [2, 2], strides = [2, 2], pads = [1, 0, 0, 1]"),
            )
        ),
        Report(
            "convolution, SAME_LOWER",
            '(float[1, 4, 5, 5] x, float[2, 4, 2, 2] w) => (float[1, 2, h, w2] y) { y = Conv<auto_pad = "SAME_LOWER">(x, w) }',
            {"x": normal(1, 4, 5, 5), "w": normal(2, 4, 2, 2)},
        ),
        Report(
            "regions of interest",
            "(float[1, 2, 8, 8] x, float[2, 4] r) => (float[2, 2, 2, 2] y) <int64[2] i = {0, 0}> { y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2, spatial_scale = 0.5>(x, r, i) }",
            {"x": normal(1, 2, 8, 8), "r": np.array([[0, 0, 8, 8], [2, 3, 9, 7]], np.float32)},
        ),
        Report(
            "depth to space by columns",
            '(float[1, 8, 2, 2] x) => (float[1, 2, 4, 4] y) { y = DepthToSpace<blocksize = 2, mode = "CRD">(x) }',
            {"x": normal(1, 8, 2, 2)},
        ),
    ]


def _shapes() -> list[Report]:
    signs = np.where(np.arange(64) % 2, 1, -1)
    return [
        Report(
            "slopes of the last axis",
            "(float[1, 4, 4, 4] x) => (float[1, 4, 4, 4] y) <float[4] s = {-0.5, 0.1, 2, 0}> { y = PRelu(x, s) }",
            {"x": normal(1, 4, 4, 4)},
            source="openvino: PRelu",
        ),
        Report(
            "slopes of channels",
            "(float[1, 4, 8] x) => (float[1, 4, 8] y) <float[4, 1] s = {-0.5, 0.1, 2, 0}> { y = PRelu(x, s) }",
            {"x": normal(1, 4, 8)},
        ),
        Report(
            "einsum",
            '(float[2, 3, 4] x, float[2, 4, 5] z) => (float[2, 3, 5] y) { y = Einsum<equation = "bij,bjk->bik">(x, z) }',
            {"x": normal(2, 3, 4), "z": normal(2, 4, 5)},
        ),
        Report(
            "einsum of a diagonal",
            '(float[4, 4] x) => (float[4] y) { y = Einsum<equation = "ii->i">(x) }',
            {"x": normal(4, 4)},
        ),
        Report(
            "lower triangle",
            "(float[4, 5] x) => (float[4, 5] y) <int64 k = {-1}> { y = Trilu<upper = 0>(x, k) }",
            {"x": normal(4, 5)},
        ),
        Report(
            "scatter to one place",
            '(float[6] x, float[4] u) => (float[6] y) <int64[4] i = {1, 1, 3, 1}> { y = ScatterElements<reduction = "add">(x, i, u) }',
            {"x": normal(6), "u": normal(4)},
        ),
        Report(
            "scatter the largest",
            '(float[6] x, float[4] u) => (float[6] y) <int64[4, 1] i = {1, 1, 3, 1}> { y = ScatterND<reduction = "max">(x, i, u) }',
            {"x": normal(6), "u": normal(4)},
        ),
        Report(
            "gather from the end",
            "(float[6, 3] x) => (float[2, 3] y) <int64[2] i = {-1, -6}> { y = Gather(x, i) }",
            {"x": normal(6, 3)},
            source="tvm #15651",
        ),
        Report(
            "slice backwards",
            "(float[6, 8] x) => (float[a, b] y) <int64[2] s = {-1, -2}, int64[2] axes = {0, 1}, int64[2] steps = {-1, -3}, int64[2] e = {-9223372036854775807, -9223372036854775807}> { y = Slice(x, s, e, axes, steps) }",
            {"x": normal(6, 8)},
        ),
        Report(
            "gemm",
            "(float[4, 5] x, float[6, 4] w) => (float[5, 6] y) <float[6] c = {1, 2, 3, 4, 5, 6}> { y = Gemm<alpha = 0.5, beta = 2.0, transA = 1, transB = 1>(x, w, c) }",
            {"x": normal(4, 5), "w": normal(6, 4)},
        ),
        Report(
            "sums from the end",
            "(float[4, 16] x) => (float[4, 16] y) <int64 axis = {1}> { y = CumSum<exclusive = 1, reverse = 1>(x, axis) }",
            {"x": normal(4, 16)},
        ),
        Report(
            "mean over nothing",
            "(float[4, 4] x) => (float[4, 4] y) { y = ReduceMean<noop_with_empty_axes = 1>(x) }",
            {"x": normal(4, 4)},
        ),
        Report(
            "steps by rows",
            "(float[2, 3] x) => (float[2, 3] y) <float[2] s = {0.1, 0.2}, int8[2] z = {3, -4}> { q = QuantizeLinear<axis = 0>(x, s, z) y = DequantizeLinear<axis = 0>(q, s, z) }",
            {"x": normal(2, 3)},
        ),
        Report(
            "steps found at run time",
            "(float[2, 3] x) => (float[2, 3] y) { q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }",
            {"x": normal(2, 3)},
        ),
        Report(
            "bits shifted out",
            '(uint8[8] x) => (uint8[8] y) <uint8[1] s = {3}> { y = BitShift<direction = "LEFT">(x, s) }',
            {"x": whole(0, 255, 8).astype(np.uint8)},
        ),
        *(
            Report(
                f"{op} of negative whole numbers",
                f"(int32[64] x, int32[64] z) => (int32[64] y) {{ y = {op}(x, z) }}",
                {"x": whole(-50, 50, 64).astype(np.int32), "z": (whole(1, 9, 64) * signs).astype(np.int32)},
            )
            for op in ("Mod", "Mod<fmod = 1>", "Div")
        ),
        Report(
            "group normalisation",
            "(float[1, 4, 8, 8] x, float[4] s, float[4] b) => (float[1, 4, 8, 8] y) { y = GroupNormalization<num_groups = 2>(x, s, b) }",
            {"x": normal(1, 4, 8, 8), "s": normal(4), "b": normal(4)},
            21,
        ),
    ]


def _recurrent() -> list[Report]:
    weights = {"w": normal(1, 12, 4), "r": normal(1, 12, 3)}
    head = "(float[3, {b}, 4] x, float[1, 12, 4] w, float[1, 12, 3] r"
    return [
        Report(
            "lstm with peepholes",
            f"{head.format(b=2)}, float[1, 9] p) => (float[3, 1, 2, 3] y) {{ y = LSTM<hidden_size = 3>(x, w, r, , , , , p) }}",
            {"x": normal(3, 2, 4), **weights, "p": normal(1, 9)},
            source="openvino: peepholes",
        ),
        Report(
            "lstm, clipped",
            f"{head.format(b=1)}) => (float[3, 1, 1, 3] y) {{ y = LSTM<hidden_size = 3, clip = 0.3>(x, w, r) }}",
            {"x": normal(3, 1, 4), **weights},
        ),
        Report(
            "gru",
            "(float[3, 1, 4] x, float[1, 9, 4] w, float[1, 9, 3] r, float[1, 18] b) => (float[3, 1, 1, 3] y) { y = GRU<hidden_size = 3, linear_before_reset = 0>(x, w, r, b) }",
            {"x": normal(3, 1, 4), "w": normal(1, 9, 4), "r": normal(1, 9, 3), "b": normal(1, 18)},
        ),
        Report(
            "lstm of two lengths",
            '(float[3, 2, 4] x, float[2, 12, 4] w, float[2, 12, 3] r) => (float[3, 2, 2, 3] y) <int32[2] l = {3, 1}> { y = LSTM<hidden_size = 3, direction = "bidirectional">(x, w, r, , l) }',
            {"x": normal(3, 2, 4), "w": normal(2, 12, 4), "r": normal(2, 12, 3)},
        ),
    ]


REPORTS = {one.name: one for one in (*_numbers(), *_orders(), *_places(), *_shapes(), *_recurrent())}
