"""Products, attention and recurrences in other forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    ("joined", "joined-heads", "scaled-weights", "operator", "contributed"),
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
    ("unrolled", "unrolled-joined"),
    {"GRU 16 steps, 256 to 256": (16, 256, 256), "GRU 64 steps, 128 to 128": (64, 128, 128)},
)
def gru(b: Builder, form: str, steps: int, width: int, hidden: int) -> str:
    """A GRU unrolled, each step with its input product, or with one product for all steps before them."""
    x = b.input("x", (steps, 1, width))
    w, r = random(3 * hidden, width), random(3 * hidden, hidden, seed=1)
    bias, inner = random(3 * hidden), random(3 * hidden, seed=1)
    if form == ORIGINAL:
        both = b.const(np.concatenate([bias, inner])[None])
        inputs = [x, b.const(w[None]), b.const(r[None]), both]
        return b.ops("GRU", *inputs, outputs=1, hidden_size=hidden, linear_before_reset=1)[0]
    turned, matrix = b.const(np.ascontiguousarray(w.T)), b.const(np.ascontiguousarray(r.T))
    before, rest = b.const(bias), b.const(inner)
    if form == "unrolled":
        rows = [b.op("Gemm", row, turned, before) for row in _rows(b, reshape(b, x, steps, width), steps)]
    else:
        rows = _rows(b, b.op("Gemm", reshape(b, x, steps, width), turned, before), steps)
    state, made = b.const(np.zeros((1, hidden), np.float32)), []
    parts = b.ints(hidden, hidden, hidden)
    for row in rows:
        z, reset, new = b.ops("Split", row, parts, outputs=3, axis=1)
        uz, ur, un = b.ops("Split", b.op("Gemm", state, matrix, rest), parts, outputs=3, axis=1)
        update = b.op("Sigmoid", b.op("Add", z, uz))
        forget = b.op("Sigmoid", b.op("Add", reset, ur))
        new = b.op("Tanh", b.op("Add", new, b.op("Mul", forget, un)))
        state = b.op("Add", new, b.op("Mul", update, b.op("Sub", state, new)))
        made.append(state)
    return reshape(b, b.op("Concat", *made, axis=0), steps, 1, 1, hidden)


def _rows(b: Builder, x: str, steps: int) -> list[str]:
    return b.ops("Split", x, b.ints(*[1] * steps), outputs=steps, axis=0)
