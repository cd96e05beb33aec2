"""Small models of what was reported from the end of 2024 on as wrong on a CPU, each rebuilt from its report.

The table in ``docs/backends.md`` says what becomes of each.
"""

# ruff: noqa: E501 - a model in ONNX's text form is read more easily in one line

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.support.reports import Report, line, normal, ties, whole

NAN, INF = float("nan"), float("inf")


def _row(*numbers: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(numbers, dtype)


def _of_x(name: str, source: str, graph: str, values: np.ndarray, opset: int = 18) -> Report:
    return Report(name, graph, {"x": values}, opset, source)


def _nonfinite() -> list[Report]:
    head = "(float[5] x) => (float[5] y)"
    largest = "(float[6] x) => (float y)"
    place = "(float[6] x) => (int64 y)"
    return [
        _of_x("relu of NaN", "openvino #35649", f"{head} {{ y = Relu(x) }}", _row(NAN, -1, 0, 1, INF)),
        _of_x("gelu of infinity", "openvino #35934", f"{head} {{ y = Gelu(x) }}", _row(INF, INF, 5e30, 75, -1), 20),
        _of_x(
            "softmax of infinity",
            "openvino #35897",
            f"{head} {{ y = Softmax<axis = -1>(x) }}",
            _row(2.5, 7, INF, -1, 0.5),
        ),
        _of_x(
            "largest of 0 and NaN",
            "openvino #37730",
            f"{head} <float zero = {{0.0}}> {{ s = Sqrt(x) y = Max(zero, s) }}",
            _row(-1, 4, -9, 1, 0),
        ),
        _of_x("erf of NaN", "onnxruntime #28462", f"{head} {{ y = Erf(x) }}", _row(NAN, NAN, 0.5, -0.5, NAN)),
        Report(
            "largest of NaN and a number",
            "(float[5] x, float[5] z) => (float[5] y) { y = Max(x, z) }",
            {"x": _row(NAN, 1, NAN, 0, 2), "z": _row(1, NAN, NAN, 3, -1)},
            source="tvm #19579",
        ),
        _of_x(
            "largest with NaN",
            "tvm #19572",
            f"{largest} {{ y = ReduceMax<keepdims = 0>(x) }}",
            _row(2, NAN, 1, 5, 6, 7),
        ),
        _of_x(
            "sum of exponentials with NaN",
            "openvino #35929",
            f"{largest} {{ y = ReduceLogSumExp<keepdims = 0>(x) }}",
            _row(0.5, 1.5, 2.5, NAN, 3.5, 4.5),
        ),
        _of_x(
            "largest with NaN at the end",
            "",
            f"{largest} {{ y = ReduceMax<keepdims = 0>(x) }}",
            _row(2, 1, 5, 6, 7, NAN),
        ),
        _of_x(
            "place of the least with NaN",
            "openvino #35886",
            f"{place} {{ y = ArgMin<axis = 0, keepdims = 0>(x) }}",
            _row(4, 2, NAN, 6, 1, 3),
        ),
        _of_x(
            "place of the largest of NaN",
            "openvino #33626",
            f"{place} {{ y = ArgMax<axis = 0, keepdims = 0>(x) }}",
            np.full(6, NAN, np.float32),
        ),
        _of_x(
            "largest three with NaN",
            "openvino #35898",
            "(float[6] x) => (float[3] v, int64[3] i) <int64[1] k = {3}> { v, i = TopK<axis = 0>(x, k) }",
            _row(4, 2, NAN, 6, 1, 3),
        ),
        _of_x(
            "pool of nothing but NaN",
            "openvino #35935",
            "(float[1, 1, 3, 3] x) => (float[1, 1, 1, 1] y) { y = MaxPool<kernel_shape = [3, 3]>(x) }",
            np.full((1, 1, 3, 3), NAN, np.float32),
        ),
        Report(
            "scatter the largest with NaN",
            '(float[5] x, float[3] u) => (float[5] y) <int64[3] i = {0, 2, 4}> { y = ScatterElements<axis = 0, reduction = "max">(x, i, u) }',
            {"x": normal(5), "u": _row(NAN, 1, NAN)},
            source="openvino #35933",
        ),
    ]


def _whole_numbers() -> list[Report]:
    return [
        *(
            Report(
                name,
                f"({kind}[4] x, {kind}[4] z) => ({kind}[4] y) {{ y = {op}(x, z) }}",
                {"x": np.array(x, kind), "z": np.array(z, kind)},
                source=source,
            )
            for name, kind, op, x, z, source in (
                ("powers of int64", "int64", "Pow", (13, 17, 19, 23), (8, 7, 7, 6), "openvino #35838"),
                ("products of uint8", "uint8", "Mul", (200, 100, 50, 10), (200, 3, 6, 30), "openvino #35646"),
                ("differences of uint8", "uint8", "Sub", (5, 200, 250, 0), (10, 100, 10, 50), "openvino #35639"),
                ("sums of int8", "int8", "Add", (100, 127, -128, -100), (100, 10, -10, -50), "openvino #35651"),
                ("differences of int8", "int8", "Sub", (-128, 127, -1, 0), (1, -128, -127, 100), "openvino #35650"),
            )
        ),
        _of_x(
            "cast of large numbers to int64",
            "openvino #35896",
            "(float[4] x) => (int64[4] y) { y = Cast<to = 7>(x) }",
            _row(5e18, -5e18, 1e15, 7.7),
        ),
        _of_x(
            "cast to int4",
            "openvino #38158",
            "(float[8] x) => (float[8] y) { c = Cast<to = 22>(x) y = Cast<to = 1>(c) }",
            _row(-3.5, -2.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5),
            21,
        ),
        _of_x(
            "division rounded up",
            "tvm #18684",
            "(int32[4] x) => (int32[4] y) <int32 nine = {9}, int32 ten = {10}> { s = Add(x, nine) y = Div(s, ten) }",
            np.array([24, 20, 11, 2_000_000_000], np.int32),
        ),
        _of_x(
            "division of constants above 2^53",
            "tvm #20281",
            "(int64[1] x) => (int64[1] y) <int64[1] a = {9007199254740993}, int64[1] b = {1}> { d = Div(a, b) y = Add(x, d) }",
            np.array([0]),
        ),
        _of_x(
            "bits turned over",
            "tvm #17991",
            "(int32[4] x) => (int32[4] y) { y = BitwiseNot(x) }",
            np.array([0, 1, -7, 2**30], np.int32),
        ),
    ]


def _functions() -> list[Report]:
    head = "(float[64] x) => (float[64] y)"
    return [
        *(
            _of_x(name, source, f"{head} {{ y = {op}(x) }}", values)
            for name, op, values, source in (
                ("softplus of large numbers", "Softplus", line(0, 300), "tvm #18241"),
                ("hyperbolic sine near the largest number", "Sinh", line(-88.9, 89.2), "tvm #19559"),
                ("hyperbolic cosine near the largest number", "Cosh", line(-88.9, 89.2), "tvm #19559"),
                ("arc tangent of large numbers", "Atan", line(-2e25, 3e22), "tvm #19560"),
                ("inverse hyperbolic sine of large numbers", "Asinh", line(-8e23, 5e25), "tvm #19561"),
            )
        ),
        _of_x(
            "erf of the smallest numbers",
            "tvm #19562",
            "(float[4] x) => (float[4] y) { y = Erf(x) }",
            _row(3e-12, 5e-20, -7e-15, 0.4),
        ),
        _of_x(
            "gelu by tanh near -1", "tvm #18750", f'{head} {{ y = Gelu<approximate = "tanh">(x) }}', line(-3, 1), 20
        ),
        _of_x(
            "softplus in float64 above 20",
            "tvm #20184",
            "(double[16] x) => (double[16] y) { y = Softplus(x) }",
            np.linspace(19, 30, 16),
        ),
        _of_x(
            "softsign behind relu",
            "openvino #31252",
            "(float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] y) { r = Relu(x) s = Sqrt(r) y = Softsign(s) }",
            normal(1, 3, 4, 4),
        ),
        _of_x(
            "sine of a cosine of rounded numbers",
            "onnxruntime #23212",
            f"{head} {{ r = Round(x) c = Cos(r) y = Sin(c) }}",
            line(-16, 15.5),
        ),
        Report(
            "attention with a soft cap",
            "(float[4, 512] x, float[512, 128] w, float[512, 128] v) => (float[4, 4] y) <float cap = {20000.0}> { q = MatMul(x, w) k = MatMul(x, v) t = Transpose<perm = [1, 0]>(k) s = MatMul(q, t) d = Div(s, cap) h = Tanh(d) y = Mul(h, cap) }",
            {"x": normal(4, 512), "w": normal(512, 128), "v": normal(512, 128)},
            source="openvino #35636",
        ),
    ]


def _images() -> list[Report]:
    return [
        _of_x(
            "average pool, last window in the padding",
            "openvino #33369",
            "(float[1, 3, 17, 17] x) => (float[1, 3, h, w] y) { y = AveragePool<kernel_shape = [2, 2], strides = [2, 2], pads = [0, 0, 1, 1], ceil_mode = 1>(x) }",
            normal(1, 3, 17, 17),
        ),
        _of_x(
            "average pool that counts uneven padding",
            "onnxruntime #27375",
            "(float[1, 3, 8, 8] x) => (float[1, 3, h, w] y) { y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [2, 0, 1, 1], count_include_pad = 1, ceil_mode = 1>(x) }",
            normal(1, 3, 8, 8),
            19,
        ),
        _of_x(
            "pad before an average, operator set 21",
            "onnxruntime #26708",
            "(float[1, 1, 2, 2] x) => (float[1, 1, h, w] y) <int64[8] p = {0, 0, 0, 0, 0, 0, 1, 1}, float v = {0.0}> { a = Pad(x, p, v) y = AveragePool<kernel_shape = [2, 2]>(a) }",
            normal(1, 1, 2, 2, around=3),
            21,
        ),
        _of_x(
            "average pool of one point in float16",
            "openvino #33600",
            "(float16[1, 1, 1, 1] x) => (float16[1, 1, 1, 1] y) { y = AveragePool<kernel_shape = [1, 1]>(x) }",
            np.full((1, 1, 1, 1), 5.203, np.float16),
        ),
        Report(
            "transposed convolution to a given size",
            '(float[1, 2, 5, 5] x, float[2, 3, 3, 3] w) => (float[1, 3, h, w2] y) { y = ConvTranspose<strides = [2, 2], output_shape = [9, 10], auto_pad = "SAME_UPPER">(x, w) }',
            {"x": normal(1, 2, 5, 5), "w": normal(2, 3, 3, 3)},
            source="openvino #31007",
        ),
        _of_x(
            "resize nearest, halves up",
            "openvino #36023",
            '(float[1, 1, 1, 20] x) => (float[1, 1, 1, 6] y) <int64[4] s = {1, 1, 1, 6}> { y = Resize<mode = "nearest", coordinate_transformation_mode = "half_pixel", nearest_mode = "round_prefer_ceil">(x, , , s) }',
            line(0, 1, 20).reshape(1, 1, 1, 20),
            13,
        ),
        _of_x(
            "resize with an empty region",
            "openvino #35895",
            '(float[2, 2, 2, 2] x) => (float[2, 2, h, w] y) <float[0] roi = {}, float[4] s = {1, 1, 3, 3}> { y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric">(x, roi, s) }',
            normal(2, 2, 2, 2),
        ),
        _of_x(
            "batch normalisation at inference",
            "tvm #18703",
            "(float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) <float[2] s = {1, 2}, float[2] b = {0.5, -1}, float[2] m = {3, -2}, float[2] v = {4, 0.25}> { y = BatchNormalization<training_mode = 0>(x, s, b, m, v) }",
            normal(1, 2, 4, 4, scale=5),
        ),
        Report(
            "convolution between quantisers",
            "(float[1, 4, 8, 8] x, int8[3, 4, 3, 3] w) => (float[1, 3, 6, 6] y) <float s = {0.01}, uint8 z = {0}, float t = {0.02}, int8 n = {0}, float u = {0.5}, uint8 m = {128}> { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(w, t, n) c = Conv(d, e) p = QuantizeLinear(c, u, m) y = DequantizeLinear(p, u, m) }",
            {"x": np.abs(normal(1, 4, 8, 8)) + 2, "w": np.full((3, 4, 3, 3), 100, np.int8)},
            source="onnxruntime #24711",
        ),
        Report(
            "slopes of a whole image",
            "(float[1, 4, 4, 4] x, float[4, 4, 4] s) => (float[1, 4, 4, 4] y) { y = PRelu(x, s) }",
            {"x": normal(1, 4, 4, 4), "s": normal(4, 4, 4)},
            source="tvm #18598",
        ),
        Report(
            "einsum of masks",
            '(float[1, 16, 12, 12] x, float[1, 5, 16] q) => (float[1, 5, 12, 12] y) { y = Einsum<equation = "bchw,bnc->bnhw">(x, q) }',
            {"x": normal(1, 16, 12, 12), "q": normal(1, 5, 16)},
            source="openvino #37990",
        ),
    ]


def _axes() -> list[Report]:
    return [
        *(
            _of_x(
                f"transposed by {perm} behind a reduction",
                "openvino #37959",
                f"(float[1, 1, 2, 2] x) => (float[a, b, c] y) <int64[1] r = {{2}}> {{ m = ReduceMax<keepdims = 0>(x, r) y = Transpose<perm = [{perm}]>(m) }}",
                normal(1, 1, 2, 2),
            )
            for perm in ("0, 2, 1", "2, 1, 0", "1, 2, 0")
        ),
        Report(
            "difference by rows behind a reduction",
            "(float[1, 1, 2, 2] x, float[1, 2, 2] z) => (float[1, 2, 2] y) <int64[1] r = {2}> { m = ReduceMax<keepdims = 0>(x, r) t = Transpose<perm = [0, 2, 1]>(m) y = Sub(z, t) }",
            {"x": normal(1, 1, 2, 2), "z": normal(1, 2, 2)},
            source="openvino #37959",
        ),
        _of_x(
            "least behind a transpose",
            "openvino #33356",
            "(float[36, 3, 1] x) => (bool[36, 3] y) <int64[1] r = {1}> { t = Transpose<perm = [0, 2, 1]>(x) m = ReduceMin<keepdims = 0>(t, r) y = Cast<to = 9>(m) }",
            ties(36, 3, 1),
        ),
        _of_x(
            "sum behind a transpose",
            "openvino #33357",
            "(float[1, 58, 1, 58, 13] x) => (float[1, 58, 13, 1] y) <int64[1] r = {3}> { t = Transpose<perm = [0, 1, 4, 3, 2]>(x) y = ReduceSum<keepdims = 0>(t, r) }",
            normal(1, 58, 1, 58, 13),
        ),
        Report(
            "means repeated in order",
            "(float[4, 6, 4] x, float[4, 5, 4] z) => (float[32] y) <int64[1] r = {1}, int64[3] n = {1, 2, 1}, int64[1] s = {-1}> { c = Concat<axis = 1>(x, z) m = ReduceMean<keepdims = 0>(c, r) u = Unsqueeze(m, r) t = Tile(u, n) y = Reshape(t, s) }",
            {"x": normal(4, 6, 4), "z": normal(4, 5, 4)},
            source="openvino #37962",
        ),
        Report(
            "means in float16",
            "(float16[2, 3, 4] x, float16[2, 5, 4] z, bool[2, 1, 4] b) => (float16[4, 1, 2] y) <int64[1] r = {1}> { c = Concat<axis = 1>(x, z) m = ReduceMean<keepdims = 1>(c, r) e = Mul(m, m) w = Where(b, m, e) y = Transpose<perm = [2, 1, 0]>(w) }",
            {
                "x": normal(2, 3, 4).astype(np.float16),
                "z": normal(2, 5, 4).astype(np.float16),
                "b": whole(0, 2, 2, 1, 4).astype(bool),
            },
            source="openvino #37960",
        ),
        _of_x(
            "sums from the end of a row",
            "tvm #18135",
            "(float[3, 4] x) => (float[3, 4] y) <int64 axis = {1}> { y = CumSum<reverse = 1>(x, axis) }",
            normal(3, 4),
        ),
        _of_x(
            "gather by samples",
            "openvino #30797",
            "(float[2, 4, 8] x) => (float[2, 2, 8] y) <int64[2, 2, 1] i = {0, 3, 2, 1}> { y = GatherND<batch_dims = 1>(x, i) }",
            normal(2, 4, 8),
        ),
        _of_x(
            "one of five along a middle axis",
            "openvino #31120",
            "(int64[3, 2] x) => (float[3, 5, 2] y) <int64 d = {5}, float[2] v = {0, 1}> { y = OneHot<axis = 1>(x, d, v) }",
            whole(0, 5, 3, 2),
        ),
        _of_x(
            "number of the largest from a gather",
            "onnxruntime #29072",
            "(float[4, 8] x) => (float[4, 3] v, int64[4, 3] i) <int64[2] ks = {2, 3}, int64[1] one = {1}> { k = Gather(ks, one) v, i = TopK(x, k) }",
            normal(4, 8),
        ),
        _of_x(
            "gather in a loop",
            "openvino #35797",
            "(float[4] x) => (float[4] y) <int64 n = {2}, bool go = {1}, float[3, 4] t = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, int64[4, 2] at = {0, 1, 2, 3, 1, 1, 0, 0}> { y = Loop<body = b (int64 i, bool c, float[4] h) => (bool d, float[4] o) { d = Identity(c) g = GatherND(t, at) o = Add(h, g) }>(n, go, x) }",
            normal(4),
        ),
        Report(
            "joined, split and through gelu",
            "(float[2, 3, 8] x, float[2, 5, 8] z) => (float[2, 3, 8] a, float[2, 5, 8] b) <int64[2] n = {3, 5}> { c = Concat<axis = 1>(x, z) t = Tan(c) p, q = Split<axis = 1>(t, n) a = Gelu(p) b = Gelu(q) }",
            {"x": normal(2, 3, 8), "z": normal(2, 5, 8)},
            20,
            "tvm #18897",
        ),
        Report(
            "split of a reshaped product",
            "(float[12, 72] x, float[72, 36] w) => (float[2, 2, 36] a, float[2, 2, 36] b, float[2, 2, 36] c) <int64[3] s = {2, 6, 36}, int64[3] n = {2, 2, 2}> { h = MatMul(x, w) r = Reshape(h, s) a, b, c = Split<axis = 1>(r, n) }",
            {"x": normal(12, 72), "w": np.ones((72, 36), np.float32)},
            source="ncnn #6166",
        ),
        Report(
            "layer normalisation over two axes",
            "(float[1, 6, 4, 8] x, float[4, 8] s, float[4, 8] b) => (float[1, 6, 4, 8] y) { y = LayerNormalization<axis = -2>(x, s, b) }",
            {"x": normal(1, 6, 4, 8), "s": normal(4, 8), "b": normal(4, 8)},
            source="ncnn #5942",
        ),
        Report(
            "gemm by columns",
            "(float[3, 8] x, float[8, 5] w) => (float[3, 5] y) <float[5] b = {1, 2, 3, 4, 5}> { y = Gemm<transB = 0>(x, w, b) }",
            {"x": normal(3, 8), "w": normal(8, 5)},
            source="ncnn #6070",
        ),
    ]


def _optimisers() -> list[Report]:
    head = "(float[8, 8] x, float[8, 8] w) => (float[8, 8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}>"
    return [
        Report(
            "product behind a transpose that changes nothing",
            f"{head} {{ t = Transpose<perm = [0, 1]>(x) m = MatMul(t, w) y = Add(m, b) }}",
            {"x": normal(8, 8), "w": normal(8, 8)},
            source="onnxruntime #32228",
        ),
        _of_x(
            "constant reshaped several times",
            "onnxruntime #29788",
            "(float[4, 6] x) => (float[4, 6] y) <float[1, 24] c = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}, int64[3] s = {1, 4, 6}, int64[1] a = {0}> { r = Reshape(c, s) q = Squeeze(r, a) f = Flatten(q) y = Add(x, f) }",
            normal(4, 6),
        ),
        _of_x(
            "cast to the same type before a product by 1",
            "onnxruntime #32416",
            "(float[4] x) => (float[4] y) <float one = {1.0}> { c = Cast<to = 1>(x) d = Div(one, c) m = Mul(d, one) y = Mul(m, c) }",
            normal(4, around=5),
        ),
        _of_x(
            "layer normalisation by a wider scale",
            "onnxruntime #31980",
            "(float[1, 1] x) => (float[1, 2] y) <float[2] s = {3, 4}, float two = {2.0}, float e = {1e-5}> { m = ReduceMean<axes = [-1]>(x) a = Sub(x, m) q = Pow(a, two) v = ReduceMean<axes = [-1]>(q) p = Add(v, e) d = Sqrt(p) n = Div(a, d) y = Mul(s, n) }",
            normal(1, 1),
            17,
        ),
        _of_x(
            "squeezed twice",
            "onnx optimizer #253",
            "(float[1, 4, 1, 8] x) => (float[4, 8] y) <int64[1] a = {2}, int64[1] b = {0}> { s = Squeeze(x, a) y = Squeeze(s, b) }",
            normal(1, 4, 1, 8),
        ),
        _of_x(
            "the same twice, and nearly the same",
            "onnx optimizer #254",
            "(float[4, 8] x) => (float[4, 8] y, float[4, 8] z) { a = Softmax<axis = 0>(x) b = Softmax<axis = 1>(x) c = Softmax<axis = 1>(x) y = Add(a, b) z = Mul(b, c) }",
            ties(4, 8),
        ),
    ]


RECENT: Mapping[str, Report] = {
    one.name: one for one in (*_whole_numbers(), *_functions(), *_images(), *_axes(), *_optimisers())
}
NONFINITE: Mapping[str, Report] = {one.name: one for one in _nonfinite()}
"""With NaN or infinity in the inputs, or made from them."""
