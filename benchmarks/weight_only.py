"""Do weights in int8 pay where one token at a time is computed, and what would int4 add?

    python benchmarks/weight_only.py weight_only.json [--layers 6] [--hidden 768] [--words 32000] [--rounds 9]

A decoder's step with a cache, random weights: each library in float32, with what makes it read fewer bytes, and with
weights in int4, in blocks of 128, by ONNX Runtime's own tool. One thread; each side in a process of its own, taking
turns; the least of all runs stands beside their median, which others at work make longer. Errors are relative 2-norms
of the logits, on random inputs.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from turns import median_ms, take_turns

from collage_evo.backends.base import BuildFailure
from collage_evo.backends.checks import numerics_in
from collage_evo.backends.registry import get_backend
from collage_evo.fitness.build.cache import PieceCache
from collage_evo.fitness.build.compiler import Compiler
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import reference_outputs, relative_error
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import signature_of
from collage_evo.target.slots import usable_cores
from collage_evo.target.target import Target

WIDTH = 64
"""Of an attention head."""
WRITTEN = (
    ("onnxruntime", "default"), ("onnxruntime", "int8-dynamic"), ("onnxruntime", "int8-blocks"),
    ("openvino", "default"), ("openvino", "bf16"), ("openvino", "int8-weights"),
)  # fmt: skip


class Decoder(Builder):
    """``x`` [1, 1, hidden], keys and values of ``past`` tokens to ``logits`` [1, 1, words] and those of one more."""

    def __init__(self, layers: int, hidden: int, past: int, words: int) -> None:
        super().__init__("decoder")
        self._rng, self._hidden, self._past = np.random.default_rng(0), hidden, past
        self._made: list[str] = []
        x = self.input("x", (1, 1, hidden))
        for layer in range(layers):
            x = self.op("Add", x, self._attention(self._norm(x), layer))
            inner = self._linear(self._norm(x), hidden, 4 * hidden)
            gate = self.op("Sigmoid", self.op("Mul", inner, self.const(np.array(1.702, np.float32))))
            x = self.op("Add", x, self._linear(self.op("Mul", inner, gate), 4 * hidden, hidden))
        self._made.insert(0, self.op("MatMul", self._norm(x), self._weights(hidden, words), output="logits"))

    def made(self) -> onnx.ModelProto:
        return self.model(*self._made)

    def _attention(self, x: str, layer: int) -> str:
        square = (self._hidden, self._hidden)
        heads = self.ints(1, 1, self._hidden // WIDTH, WIDTH)
        query, key, value = (
            self.op("Transpose", self.op("Reshape", self._linear(x, *square), heads), perm=[0, 2, 1, 3])
            for _ in range(3)
        )
        cached = []
        for word, new in (("key", key), ("value", value)):
            before = self.input(f"{word}{layer}", (1, self._hidden // WIDTH, self._past, WIDTH))
            cached.append(self.op("Concat", before, new, axis=2, output=f"new_{word}{layer}"))
        self._made += cached
        scores = self.op("MatMul", query, self.op("Transpose", cached[0], perm=[0, 1, 3, 2]))
        scores = self.op("Softmax", self.op("Mul", scores, self.const(np.array(WIDTH**-0.5, np.float32))), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", scores, cached[1]), perm=[0, 2, 1, 3])
        return self._linear(self.op("Reshape", mixed, self.ints(1, 1, self._hidden)), self._hidden, self._hidden)

    def _norm(self, x: str) -> str:
        ones, zeros = np.ones(self._hidden, np.float32), np.zeros(self._hidden, np.float32)
        return self.op("LayerNormalization", x, self.const(ones), self.const(zeros), axis=-1)

    def _weights(self, read: int, made: int) -> str:
        return self.const((self._rng.standard_normal((read, made)) / read**0.5).astype(np.float32))

    def _linear(self, x: str, read: int, made: int) -> str:
        bias = self._rng.standard_normal(made).astype(np.float32) * np.float32(0.02)
        return self.op("Add", self.op("MatMul", x, self._weights(read, made)), self.const(bias))


def in_int4(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with all its weights in blocks of four bits."""
    tool = MatMulNBitsQuantizer(model, bits=4, block_size=128, is_symmetric=True, accuracy_level=4)
    logging.disable(logging.INFO)  # a line for each operator
    tool.process()
    packed: onnx.ModelProto = tool.model.model
    return packed


def sides(compiler: Compiler, graph: Graph) -> dict[str, Program | BuildFailure]:
    """The whole model on each side."""
    found = {}
    for name, own in WRITTEN:
        variant = get_backend(name).variant(own)
        region = Region(graph.all_nodes, name, variant.base, edits=numerics_in(graph, graph.all_nodes, variant))
        found[f"{name} {own}"] = compiler.placement(graph, Placement((region,)))
    packed = in_int4(graph.model)
    return found | {f"{name} int4": compiler.whole(packed, name, "default") for name in ("onnxruntime", "openvino")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--past", type=int, default=128)
    parser.add_argument("--words", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn")
    options = parser.parse_args()
    model = Decoder(options.layers, options.hidden, options.past, options.words).made()
    graph = build_graph(model)
    feeds = random_inputs(graph, 0)
    exact = reference_outputs(model, feeds)
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(Target(), PieceCache(Path(folder) / "pieces", 10**10))
        errors, commands = {}, {}
        for name, program in sides(compiler, graph).items():
            if isinstance(program, BuildFailure):
                print(f"{name}: {program.reason}")
                continue
            path = Path(folder) / f"{name}.collage"
            write_artifact(path, [Profile(program, {})], Target(), signature_of(model))
            found = load_artifact(path).run(["logits"], feeds)
            errors[name], commands[name] = relative_error(found, exact[:1]).relative, ["execute", str(path)]
        rounds = take_turns(commands, usable_cores()[:1], options.rounds, options.seconds)
    for name, error in errors.items():
        least = min(ms for turn in rounds[name] for ms in turn.times_ms)
        print(f"{name:26} {median_ms(rounds, name):8.2f} ms, at least {least:.2f}; error {error:.2%}")
    rows = {name: {"error": errors[name], "turns": [asdict(turn) for turn in rounds[name]]} for name in errors}
    options.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
