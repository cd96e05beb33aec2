"""ONNX's own backend node tests, each as one region of one backend: how many it takes, and whether they are right.

    python benchmarks/node_tests.py [--backends openvino ncnn] [--out node_tests.json]

Taken are the cases of ``onnx.backend.test`` whose inputs and outputs are tensors of static shapes, some of them
float32; each as it is, and again with all inputs but the first as constants, because weights mostly are. A case
goes the way of a search: normalised, asked about, compiled, run on planned memory; the wanted outputs and
tolerances are the case's own, as far as float32 can hold them. Ends with 1 if some case was accepted and is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from corpus.ask import general
from corpus.nodes import computed
from onnx import TensorProto, numpy_helper

from collage_evo.backends.base import Target
from collage_evo.backends.registry import get_backend, probe_all
from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import CollageError, one_line
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.genome.failure import Failed
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.session import Session
from collage_evo.testing.conformance import ROUNDOFFS

Status = Literal["right", "wrong", "declined", "unreadable"]
Arrays = dict[str, np.ndarray]
REASONS = 15
ROUNDING = 1e-6
"""Error of a float32 element relative to the largest of its tensor that is no fault: some eight roundoffs."""
SLICE_S = 0.5
SLICES = 600


@dataclass(frozen=True)
class Case:
    """A model with the inputs it is fed, the outputs it must give, and how near they must be."""

    name: str
    model: onnx.ModelProto
    feeds: Arrays
    wanted: Arrays
    rtol: float
    atol: float


@dataclass(frozen=True)
class Outcome:
    """What became of one case on one backend; ``reason`` unless it is right."""

    backend: str
    case: str
    status: Status
    reason: str = ""


def cases() -> list[Case]:
    """Every case that is taken, by name."""
    taken = []
    for test in computed("node"):
        if test.model is None or not test.data_sets or not _static_floats(test.model):
            continue
        inputs, outputs = test.data_sets[0]
        feeds = _named(test.model.graph.input, inputs)
        case = Case(test.name, test.model, feeds, _named(test.model.graph.output, outputs), test.rtol, test.atol)
        taken.append(case)
        if len(feeds) > 1:
            taken.append(_with_constants(case))
    return taken


def _near(case: Case, name: str, value: np.ndarray, wanted: np.ndarray, roundoff: float) -> bool:
    """Whether it is as near as the conformance suite asks, to what is wanted or to that of inputs rounded alike."""
    if relative_error([value], [wanted]).relative < ROUNDOFFS * roundoff:
        return True
    rounded = {key: _rounded(value, roundoff) for key, value in case.feeds.items()}
    made = dict(zip(case.wanted, Reference(case.model).run(rounded), strict=True))
    return relative_error([value], [made[name]]).relative < ROUNDOFFS * roundoff


def _rounded(values: np.ndarray, roundoff: float) -> np.ndarray:
    if values.dtype != np.float32:
        return values
    mantissas, exponents = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissas / roundoff) * roundoff, exponents), np.float32)


def _named(values: Sequence[onnx.ValueInfoProto], data: Sequence[np.ndarray | TensorProto]) -> Arrays:
    arrays = (numpy_helper.to_array(item) if isinstance(item, TensorProto) else np.asarray(item) for item in data)
    return {value.name: array for value, array in zip(values, arrays, strict=True)}


def _static_floats(model: onnx.ModelProto) -> bool:
    values = (*model.graph.input, *model.graph.output)
    static = all(
        value.type.HasField("tensor_type")
        and value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
        for value in values
    )
    return static and any(value.type.tensor_type.elem_type == TensorProto.FLOAT for value in values)


def _with_constants(case: Case) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    first, *others = case.feeds
    model.graph.initializer.extend(numpy_helper.from_array(case.feeds[name], name) for name in others)
    inputs = [value for value in model.graph.input if value.name == first]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    name = f"{case.name}, constants"
    return Case(name, model, {first: case.feeds[first]}, case.wanted, case.rtol, case.atol)


def judge(case: Case, backend: str, folder: Path) -> Iterator[Outcome]:
    """The case as one region, on every variant that differs there."""
    try:
        graph = build_graph(normalise(case.model))
    except CollageError as error:
        yield Outcome(backend, case.name, "unreadable", str(error))
        return
    if not graph.nodes:
        yield Outcome(backend, case.name, "unreadable", "nothing is left to compute")
        return
    if not graph.is_connected(graph.all_nodes):
        yield Outcome(backend, case.name, "unreadable", "its operators are not connected")
        return
    verdict = get_backend(backend).supports(graph, graph.all_nodes)
    if not verdict:
        yield Outcome(backend, case.name, "declined", verdict.reason)
        return
    compiler = Compiler(Target(), PieceCache(folder, 2**30))
    for variant in get_backend(backend).variants_of(graph, graph.all_nodes):
        name = f"{case.name} ({variant.name})"
        try:
            program = compiler.placement(graph, Placement((Region(graph.all_nodes, backend, variant.name),)))
        except Failed as failed:
            yield Outcome(backend, name, "declined", str(failed))
            continue
        with Session([program], Target()) as session:
            made = session.run(list(case.wanted), case.feeds)
        roundoff = 0.0 if variant.arithmetic is Arithmetic.FLOAT32 else variant.arithmetic.roundoff
        problem = _difference(case, made, roundoff)
        yield Outcome(backend, name, "wrong" if problem else "right", problem)


def _difference(case: Case, made: Sequence[np.ndarray], roundoff: float) -> str:
    """What is wrong with ``made``, or nothing; a variant of low precision is judged as the conformance suite does."""
    for (name, wanted), value in zip(case.wanted.items(), made, strict=True):
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            return f"{name} is {value.dtype}{list(value.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        # An element that cancels to nothing carries the rounding of what it was summed from.
        largest = np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted)) if wanted.dtype.kind == "f" else 0.0
        if np.allclose(value, wanted, case.rtol, max(case.atol, ROUNDING * largest), equal_nan=True):
            continue
        if roundoff and _near(case, name, value, wanted, roundoff):
            continue
        return f"{name} differs by up to {np.max(np.abs(value.astype(float) - wanted.astype(float))):.3g}"
    return ""


def run(backend: str, todo: Sequence[Case]) -> list[Outcome]:
    """All cases on one backend, in processes that may die: a death is the outcome of the case it happened in."""
    outcomes: list[Outcome] = []
    context = get_context("spawn")
    position = 0
    while position < len(todo):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(backend, todo[position:], theirs))
        process.start()
        theirs.close()
        try:
            while position < len(todo):
                # In short waits, so that a machine put to sleep is no hang.
                if not any(ours.poll(SLICE_S) for _ in range(SLICES)):
                    raise EOFError
                outcomes += ours.recv()
                position += 1
        except EOFError:
            process.kill()
            process.join()
            outcomes.append(Outcome(backend, todo[position].name, "wrong", f"crash or hang ({process.exitcode})"))
            position += 1
        process.join()
    return outcomes


def _serve(backend: str, todo: Sequence[Case], answers: Connection) -> None:
    with tempfile.TemporaryDirectory(prefix="node-tests-") as folder:
        for case in todo:
            try:
                answers.send(list(judge(case, backend, Path(folder))))
            except Exception as error:  # whatever a backend raises, it had accepted the case
                answers.send([Outcome(backend, case.name, "wrong", f"raised {one_line(error)}")])


def report(backend: str, outcomes: Sequence[Outcome]) -> None:
    """How many cases went which way, then why the backend declined, and what is wrong."""
    count: Mapping[Status, int] = Counter(outcome.status for outcome in outcomes)
    print(
        f"{backend}: accepted {count['right'] + count['wrong']}, right {count['right']}, wrong {count['wrong']}, "
        f"declined {count['declined']}, refused before any backend is asked {count['unreadable']}",
        flush=True,
    )
    reasons = Counter(general(outcome.reason) for outcome in outcomes if outcome.status == "declined")
    for reason, number in reasons.most_common(REASONS):
        print(f"  declined {number}: {reason}")
    if len(reasons) > REASONS:
        print(f"  and {len(reasons) - REASONS} more reasons")
    for outcome in outcomes:
        if outcome.status == "wrong":
            print(f"  WRONG {outcome.case}: {outcome.reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=[name for name, probe in probe_all() if probe.available])
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--out", type=Path, help="every outcome as JSON")
    args = parser.parse_args()
    todo = [case for case in cases() if args.only in case.name]
    print(f"{len(todo)} cases")
    outcomes: list[Outcome] = []
    for backend in args.backends:
        judged = run(backend, todo)
        report(backend, judged)
        outcomes += judged
    if args.out:
        args.out.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return 1 if any(outcome.status == "wrong" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
