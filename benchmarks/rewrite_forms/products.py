"""Products, attention and recurrences in other forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from collage_evo.models.builder import Builder
from rewrite_forms.form import ORIGINAL, candidate, random, reshape


@candidate(
    ("joined",),
    {
        "BERT-base Q, K, V 128x768": (128, 768, (768, 768, 768)),
        "MiniLM Q, K, V 32x384": (32, 384, (384, 384, 384)),
        "one token Q, K, V 1x768": (1, 768, (768, 768, 768)),
        "gated unit 64x512 to 2x1376": (64, 512, (1376, 1376)),
        "one token gated unit 1x768 to 2x2048": (1, 768, (2048, 2048)),
    },
)
def joined_products(b: Builder, form: str, rows: int, width: int, sides: Sequence[int]) -> Sequence[str]:
    """Products with their biases that share an input."""
    x = b.input("x", (1, rows, width))
    weights = [random(width, side, seed=k) for k, side in enumerate(sides)]
    biases = [random(side, seed=k) for k, side in enumerate(sides)]
    if form == ORIGINAL:
        pairs = zip(weights, biases, strict=True)
        return [b.op("Add", b.op("MatMul", x, b.const(w)), b.const(bias)) for w, bias in pairs]
    y = b.op("MatMul", x, b.const(np.concatenate(weights, axis=1)))
    y = b.op("Add", y, b.const(np.concatenate(biases)))
    return b.ops("Split", y, b.ints(*sides), outputs=len(sides), axis=2)


@candidate(
    ("joined", "joined-heads", "scaled-weights", "operator", "contributed", "turned-factors"),
    {
        "BERT-base 128x768": (128, 768, 12),
        "BERT-base 384x768": (384, 768, 12),
        "MiniLM 32x384": (32, 384, 12),
        "ViT-S 197x384": (197, 384, 6),
    },
    opsets={"operator": 23},
)
def attention(b: Builder, form: str, rows: int, width: int, heads: int) -> str:
    """Self-attention: Q, K, V joined; turned to heads at once; scale in the weights; or as one operator."""
    x, size = b.input("x", (1, rows, width)), width // heads
    weights = [random(width, width, seed=k) for k in range(3)]
    biases = [random(width, seed=k) for k in range(3)]
    scale = float(size**-0.5)
    if form == "joined-heads":
        y = b.op("MatMul", x, b.const(np.concatenate(weights, axis=1)))
        y = reshape(b, b.op("Add", y, b.const(np.concatenate(biases))), rows, 3, heads, size)
        y = b.op("Transpose", y, perm=[1, 2, 0, 3])
        q, k, v = (b.op("Gather", y, b.const(np.array(part, np.int64)), axis=0) for part in range(3))
        scores = b.op("Mul", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 2, 1])), b.const(np.float32(scale)))
        y = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[1, 0, 2])
        return reshape(b, y, 1, rows, width)
    if form == "scaled-weights":
        weights[0], biases[0] = weights[0] * np.float32(scale), biases[0] * np.float32(scale)
    if form == "joined":
        y = b.op("Add", b.op("MatMul", x, b.const(np.concatenate(weights, axis=1))), b.const(np.concatenate(biases)))
        q, k, v = b.ops("Split", y, b.ints(width, width, width), outputs=3, axis=2)
    else:
        pairs = zip(weights, biases, strict=True)
        q, k, v = (b.op("Add", b.op("MatMul", x, b.const(w)), b.const(bias)) for w, bias in pairs)
    if form == "operator":
        return b.op("Attention", q, k, v, q_num_heads=heads, kv_num_heads=heads, scale=scale)
    if form == "contributed":
        return b.op("MultiHeadAttention", q, k, v, num_heads=heads, scale=scale, domain="com.microsoft")
    split = [reshape(b, part, 1, rows, heads, size) for part in (q, k, v)]
    q, v = (b.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (split[0], split[2]))
    k = b.op("Transpose", split[1], perm=[0, 2, 3, 1])
    scores = b.op("MatMul", q, k)
    if form != "scaled-weights":
        scores = b.op("Mul", scores, b.const(np.float32(scale)))
    y = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return reshape(b, y, 1, rows, width)


@candidate(
    ("gemm", "convolution"),
    {
        "BERT-base 128x768 to 3072": (128, 768, 3072),
        "BERT-base 128x3072 to 768": (128, 3072, 768),
        "one row 1x2048 to 1000": (1, 2048, 1000),
    },
)
def product_with_bias(b: Builder, form: str, rows: int, width: int, made: int) -> str:
    """MatMul and Add as Gemm, or as a 1x1 convolution."""
    x, w, bias = b.input("x", (1, rows, width)), random(width, made), random(made)
    if form == ORIGINAL:
        return b.op("Add", b.op("MatMul", x, b.const(w)), b.const(bias))
    if form == "gemm":
        return reshape(b, b.op("Gemm", reshape(b, x, rows, width), b.const(w), b.const(bias)), 1, rows, made)
    kernel = np.ascontiguousarray(w.T)[:, :, None, None]
    y = reshape(b, b.op("Transpose", x, perm=[0, 2, 1]), 1, width, rows, 1)
    y = b.op("Conv", y, b.const(kernel), b.const(bias), kernel_shape=[1, 1])
    return b.op("Transpose", reshape(b, y, 1, made, rows), perm=[0, 2, 1])


@candidate(
    ("turned", "matmul"),
    {
        "ResNet-50 1x2048 to 1000": (1, 2048, 1000),
        "VGG-16 1x4096 to 4096": (1, 4096, 4096),
        "recommender 16x512 to 256": (16, 512, 256),
    },
)
def classifier(b: Builder, form: str, rows: int, width: int, made: int) -> str:
    """Gemm with a transposed matrix, as files have it, or with the matrix as it is multiplied."""
    x, w, bias = b.input("x", (rows, width)), random(made, width), random(made)
    if form == ORIGINAL:
        return b.op("Gemm", x, b.const(w), b.const(bias), transB=1)
    turned = b.const(np.ascontiguousarray(w.T))
    if form == "turned":
        return b.op("Gemm", x, turned, b.const(bias))
    return b.op("Add", b.op("MatMul", x, turned), b.const(bias))


@candidate(
    ("unrolled-steps",),
    {
        "GRU 1 step, 512, from a state": ("GRU", 1, 512, "from a state"),
        "GRU 16 steps, 256": ("GRU", 16, 256),
        "GRU 64 steps, 128": ("GRU", 64, 128),
        "GRU 32 steps, 512": ("GRU", 32, 512),
        "GRU 32 steps, 256, resets the state": ("GRU", 32, 256, "resets the state"),
        "romaniser of names: GRU 12 steps, 128, both ways": ("GRU", 12, 128, "both ways"),
        "Silero: LSTM 1 step, 128, from a state": ("LSTM", 1, 128, "from a state"),
        "RNN-T: LSTM 1 step, 640, from a state": ("LSTM", 1, 640, "from a state"),
        "LSTM 8 steps, 512": ("LSTM", 8, 512),
        "captcha reader: LSTM 20 steps, 512, both ways": ("LSTM", 20, 512, "both ways"),
        "LSTM 32 steps, 256": ("LSTM", 32, 256),
        "RNN 16 steps, 256": ("RNN", 16, 256),
        "RNN 64 steps, 512": ("RNN", 64, 512),
    },
)
def recurrence(b: Builder, form: str, op_type: str, steps: int, size: int, how: str = "") -> str:
    """A recurrence by its definition, the products of all inputs before the steps."""
    count, rows = 1 + (how == "both ways"), {"GRU": 3, "LSTM": 4, "RNN": 1}[op_type] * size
    inputs = [b.input("x", (steps, 1, size)), *(b.const(random(count, rows, size, seed=seed)) for seed in range(2))]
    inputs += [b.const(random(count, 2 * rows)), ""]
    if how == "from a state":
        inputs += [b.input(f"state{place}", (count, 1, size)) for place in range(2 if op_type == "LSTM" else 1)]
    extra: dict[str, Any] = {"direction": "bidirectional"} if how == "both ways" else {}
    if op_type == "GRU":
        extra["linear_before_reset"] = int(how != "resets the state")
    return b.ops(op_type, *inputs, outputs=1, hidden_size=size, **extra)[0]


@candidate(
    ("tabled-indices",),
    {
        "file types: 2048 bytes, 257 to 64": (2048, 257, 64),
        "characters: 128 of 100 to 128": (128, 100, 128),
        "proteins: 512 of 25 to 256": (512, 25, 256),
    },
)
def one_hot_layer(b: Builder, form: str, length: int, count: int, width: int) -> str:
    """A first layer as JAX writes it: comparisons with all numbers, a product, GELU by its tangent."""
    apart = b.op("Unsqueeze", b.input("x", (1, length), TensorProto.INT32), b.ints(2))
    row = b.op("Cast", b.op("Equal", apart, b.const(np.arange(count, dtype=np.int32))), to=TensorProto.FLOAT)
    y = b.op("Add", b.op("MatMul", row, b.const(random(count, width))), b.const(random(width)))
    cubed = b.op("Mul", b.op("Mul", b.op("Mul", y, y), y), b.const(np.float32(0.044715)))
    bent = b.op("Tanh", b.op("Mul", b.op("Add", y, cubed), b.const(np.float32(0.7978846))))
    return b.op("Mul", b.op("Mul", b.op("Add", bent, b.const(np.float32(1))), b.const(np.float32(0.5))), y)


@candidate(
    ("joined-products",),
    {
        "signs: 20 rows, 4096 to 400": (20, 4096, 400),
        "20 rows, 512 to 1024": (20, 512, 1024),
        "8 rows, 128 to 512": (8, 128, 512),
    },
)
def steps_apart(b: Builder, form: str, steps: int, width: int, made: int) -> str:
    """The inputs' products of an unrolled recurrence: each step's row by the same weights."""
    x, weights, bias = b.input("x", (steps, 1, width)), b.const(random(width, made)), b.const(random(made))
    rows = [b.op("Gather", x, b.const(np.int64(step))) for step in range(steps)]
    return b.op("Concat", *(b.op("Sigmoid", b.op("Gemm", row, weights, bias)) for row in rows), axis=0)


@candidate(
    ("convolved-rows",),
    {
        "Swin-T, ConvNeXt-T stage 1: 3136x96 to 384": (3136, 96, 384),
        "stage 2: 784x192 to 768": (784, 192, 768),
        "stage 3: 196x384 to 1536": (196, 384, 1536),
        "stage 4: 49x768 to 3072": (49, 768, 3072),
        "BERT-base: 128x768 to 3072": (128, 768, 3072),
    },
)
def perceptron(b: Builder, form: str, rows: int, width: int, inner: int) -> str:
    """Layer normalisation, two products with GELU between, and what went in added."""
    x = b.input("x", (1, rows, width))
    y = b.op("LayerNormalization", x, b.const(np.ones(width, np.float32)), b.const(random(width)), axis=-1)
    y = b.op("Add", b.op("MatMul", y, b.const(random(width, inner))), b.const(random(inner)))
    bent = b.op("Add", b.op("Erf", b.op("Div", y, b.const(np.float32(2**0.5)))), b.const(np.float32(1)))
    y = b.op("Mul", b.op("Mul", y, bent), b.const(np.float32(0.5)))
    y = b.op("Add", b.op("MatMul", y, b.const(random(inner, width, seed=1))), b.const(random(width, seed=1)))
    return b.op("Add", x, y)
