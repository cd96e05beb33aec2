"""Preparation of a model file: a model that runs, with reference outputs, then a graph to search."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.errors import InputError, NotSearchable
from collage_evo.graph.check.branches import taking_each_branch
from collage_evo.graph.check.edges import chooses, decided, edge_samples
from collage_evo.graph.convert.observe import Observation, observe, record
from collage_evo.graph.convert.origin import Origin, name_nodes
from collage_evo.graph.convert.read import build_graph, declared_tensor
from collage_evo.graph.convert.static import StaticTypes, annotate, embed_constants, static_types
from collage_evo.graph.ir.graph import COMPOSITE, OPAQUE, UNCHECKED_BRANCHES, Graph
from collage_evo.graph.ir.values import Values
from collage_evo.graph.ir.weights import graphs_of
from collage_evo.graph.load.data import given_inputs
from collage_evo.graph.load.files import digest
from collage_evo.graph.load.inputs import divides, random_inputs
from collage_evo.graph.load.larger import larger_inputs
from collage_evo.graph.load.load import LoadedModel, ModelFile
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.noise import RANDOM, Noise, differing
from collage_evo.graph.reference.reference import Reference
from collage_evo.graph.reference.rounding import Moved, cancels
from collage_evo.multimap import firsts

NORMALISED = 1e-4
"""Largest relative error (2-norm) that normalising may bring, where the model's own noise is smaller."""
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
INCOMPARABLE = 0.5
"""From this relative error on, two results have nothing in common."""
WHOLE, FRACTIONS = ((1,), (2,), (0,), (3,), tuple(range(8)), (-1, *(1,) * 7)), ((1.0,), (0.5,))
"""Values, repeated, that are tried as sizes, counts, axes and shapes, and as scales and thresholds."""
TRIED_S = 20.0
"""Time for that, seconds."""
ROUNDING_ROOM = 4.0
"""Optimisations that change an output by more than this multiple of the effect of rounding are wrong. On six networks
in float32 the multiple is 0.45 to 0.73, on a quantised one 1.2; for a wrong optimisation a million. Chosen in
between."""
RANDOM_INPUTS = "inputs are random: give your own with --data where their values matter"
ROUNDS_TO_INT8, EXACT = 4, 1
"""Accuracy levels of MatMulNBits."""


@dataclass(frozen=True)
class PreparedModel:
    """A model that runs, in the user's own form.

    ``original`` has its inputs' shapes fixed, and its outputs' where they hold for all inputs; ``dynamic`` is the
    file before that, None for one that was static. ``references`` pairs inputs with the outputs that ONNX Runtime
    gives with all optimisations off. ``noise`` has that of each output, by name. ``notes`` list assumptions.
    ``unchecked`` has the Ifs of which no reference takes one branch, by name. ``declared`` has the outputs as the
    file declares them.
    ``fixed`` has the inputs that random inputs share, by name. ``run_s``: what a reference run took.
    ``weights``: those of the first references in the latency, where inputs have several shapes.
    """

    name: str
    digest: str
    original: onnx.ModelProto
    dynamic: onnx.ModelProto | None
    references: tuple[tuple[Values, Values], ...]
    noise: Mapping[str, Noise]
    types: StaticTypes
    notes: tuple[str, ...]
    unchecked: tuple[str, ...] = ()
    declared: tuple[onnx.ValueInfoProto, ...] = ()
    edges: tuple[tuple[Values, Values], ...] = ()
    fixed: Mapping[str, np.ndarray] = field(default_factory=dict)
    run_s: float = 0.0
    weights: tuple[float, ...] = (1.0,)

    @property
    def excused(self) -> dict[str, Noise]:
        """What rounding explains of each output: a correct result may have as much."""
        return {name: noise.allowed for name, noise in self.noise.items()}

    def with_noise(self, pairs: Sequence[tuple[Values, Values]], threads: int) -> PreparedModel:
        """The same with the noise on more ``pairs`` of inputs and outputs."""
        moving = functools.cache(lambda: Moved(self.original, threads, None))
        found, _ = _noise(self.original, pairs, dict.fromkeys(self.noise, Noise()), threads, None, moving)
        return replace(self, noise=_largest([found], self.noise))


@dataclass(frozen=True)
class SearchableModel:
    """The normalised model as a graph, the relative error that normalisation added, and what was left out of it.

    ``rules``: how much was rewritten. ``recorded``: values in the first reference run of tensors that must not be
    random. Nodes have the names of the user's file; ``origin`` maps each node of the file to these.
    """

    graph: Graph
    normalisation_error: float
    rules: str
    recorded: Values
    origin: Origin


def prepare_model(
    file: ModelFile,
    shapes: Mapping[str, Sequence[int]],
    reference_inputs: int,
    threads: int,
    feeds: Sequence[Values] = (),
    any_shapes: bool = False,
    timeout_s: float | None = None,
    is_open: bool = False,
) -> PreparedModel:
    """Read ``file``, fix its shapes, run it.

    Args:
        file: the user's, or a built-in model.
        shapes: full shapes of inputs with dynamic dimensions.
        reference_inputs: number of random inputs on which results are checked.
        threads: for the reference runs.
        feeds: the user's own inputs, in place of random ones.
        any_shapes: use the smallest sizes that run where neither ``shapes`` nor the model gives them.
        timeout_s: limit of one run in seconds.
        is_open: leave its shapes open; ``feeds`` have those that count, and more are tried.

    Raises:
        InputError: the model cannot be used; the message gives the reason and the remedy.
    """
    sizes = {**{name: list(value.shape) for name, value in (feeds[0] if feeds else {}).items()}, **shapes}
    loaded = file.load_open() if is_open else file.load(sizes, any_shapes)
    model, reference, unfixed = _loaded(loaded, threads, timeout_s)  # first: its errors explain what is wrong
    pairs, fixed = _first_runs(loaded.original, reference, feeds, reference_inputs)
    if is_open:
        larger, refused = larger_inputs(model, [feeds for feeds, _ in pairs], reference)
        pairs, unfixed = pairs + larger, unfixed + refused
    more, unchecked = taking_each_branch(loaded.original, [feeds for feeds, _ in pairs], threads, timeout_s)
    pairs += [(feeds, reference.run_named(feeds)) for feeds in more]
    first, expected = pairs[0]
    began = time.monotonic()
    again = reference.run_named(first)
    run_s = time.monotonic() - began
    edges = edge_samples(model, first, reference)
    del reference  # a large model must not be in memory twice
    moving = functools.cache(lambda: Moved(model, threads, timeout_s))
    noise, remarks = _noise(model, pairs, _errors(again, expected), threads, timeout_s, moving)
    rounded = _own_rounding(model, pairs, threads, timeout_s)
    noise = {name: one | rounded.get(name, Noise()) for name, one in noise.items()}
    if rounding := max((one.error for one in rounded.values()), default=0.0):
        remarks.append(
            f"the file has ONNX Runtime round activations to int8 (accuracy_level), which moves outputs by "
            f"{rounding:.1e}: without that a library is right, too"
        )
    edges = decided(edges, moving)
    declared = tuple(deepcopy(value) for value in (loaded.dynamic or model).graph.output)
    seen, *elsewhere = (observe(model, feeds, threads) for feeds in _showing_sizes(pairs))
    types, wrong = static_types(model, seen, elsewhere), _wrongly_declared(model, seen)
    if is_open or wrong or not all(declared_tensor(value.name, value.type).static for value in model.graph.output):
        annotate(model, types)
    drawn = () if feeds else (RANDOM_INPUTS,)
    notes = (*loaded.notes, *unfixed, *wrong, *drawn, *remarks)
    for name, value in fixed.items():
        always = " ".join(map(str, value.flat[:8]))
        notes += (
            f"input {name!r} is always {always}, because ONNX Runtime refuses random numbers there: give your own "
            "with --data where others matter",
        )
    inputs = given_inputs(model)
    compiled = [value.name for value in model.graph.input if value.name not in inputs]
    if compiled:
        others = f" and {len(compiled) - 1} other inputs have values" if compiled[1:] else " has a value"
        notes += (f"{compiled[0]!r}{others} in the model's file: a session cannot be fed with any other",)
    notes += tuple(f"no input was found that takes both branches of {name!r}" for name in unchecked)
    identity = loaded.name, _open_digest(model) if is_open else digest(model), model, loaded.dynamic, tuple(pairs)
    return PreparedModel(*identity, noise, types, notes, unchecked, declared, tuple(edges), fixed, run_s)


def _open_digest(model: onnx.ModelProto) -> str:
    """The digest of what the user's file says: the sizes that were seen depend on the inputs that were there."""
    bare = deepcopy(model)
    del bare.graph.value_info[:]
    for dim in (dim for value in bare.graph.input for dim in value.type.tensor_type.shape.dim):
        dim.ClearField("denotation")
    for value in bare.graph.output:
        value.ClearField("type")
    return digest(bare)


def _first_runs(
    model: onnx.ModelProto, reference: Reference, feeds: Sequence[Values], count: int
) -> tuple[list[tuple[Values, Values]], dict[str, np.ndarray]]:
    """``feeds`` or ``count`` random inputs, with the outputs of ``reference``, and the inputs that are not random.

    Raises:
        InputError: it takes none of these.
    """

    def drawn(fixed: Values) -> list[Values]:
        return [random_inputs(model, seed=1000 + index, values=fixed) for index in range(count)]

    def run(samples: Sequence[Values]) -> list[tuple[Values, Values]]:
        return [(one, reference.run_named(one)) for one in samples]

    samples = feeds or drawn({})
    try:
        return run(samples), {}
    except InputError as refusal:
        if feeds or refusal.__cause__ is None:  # it took too long
            raise
        fixed = _fixed(model, samples, reference)
        if not fixed:
            raise InputError(f"{refusal} (on random inputs: give your own with --data)") from refusal
        return run(drawn(fixed)), fixed


def _fixed(model: onnx.ModelProto, drawn: Sequence[Values], reference: Reference) -> dict[str, np.ndarray]:
    """Inputs that are not random, such as a shape, an axis or a threshold, because ``reference`` refuses what is
    ``drawn``: one input if that is enough, else all of integers. Empty if nothing helps."""
    arrays = {name: value for name, value in drawn[0].items() if value.dtype.kind in "iuf" and value.size}
    whole = [name for name, value in arrays.items() if value.dtype.kind != "f"]
    few = [name for name, value in arrays.items() if value.dtype.kind == "f" and value.ndim <= 1]
    tried: list[tuple[list[str], tuple[float, ...]]] = [([name], fill) for name in whole for fill in WHOLE]
    tried += [([name], fill) for name in few for fill in FRACTIONS]
    tried += [(whole, fill) for fill in WHOLE]
    deadline = time.monotonic() + TRIED_S
    for names, fill in tried:
        fixed = {name: np.resize(np.array(fill), arrays[name].shape).astype(arrays[name].dtype) for name in names}
        if any(0 in value and divides(model, name) for name, value in fixed.items()):
            continue
        if time.monotonic() > deadline:
            break
        with contextlib.suppress(InputError):
            for one in drawn:
                reference.run({**one, **fixed})
            return fixed
    return {}


def _loaded(
    loaded: LoadedModel, threads: int, timeout_s: float | None
) -> tuple[onnx.ModelProto, Reference, list[str]]:
    """The model that loads, its reference, and a note if that is the one with open shapes.

    A body for other shapes, such as the branch for another sampling rate, may contradict the given ones.

    Raises:
        InputError: it does not load.
    """
    model, notes = loaded.original, list[str]()
    if loaded.dynamic is not None:
        try:
            Reference(model, threads, optimised=True)
            return model, Reference(model, threads, timeout_s=timeout_s), notes
        except InputError:
            model = deepcopy(loaded.dynamic)  # stays open: types in the other hold for its fixed shapes
            notes = ["with these shapes written into it the model does not load: its shapes stay open"]
    return model, Reference(model, threads, timeout_s=timeout_s), notes


def _wrongly_declared(model: onnx.ModelProto, seen: Observation) -> list[str]:
    """A note for each output whose declared fixed sizes differ from those in a run; ONNX Runtime only warns of it."""
    notes = []
    for value in model.graph.output:
        declared, observed = declared_tensor(value.name, value.type), seen.tensors[value.name]
        if declared.dtype != OPAQUE and declared.static and declared.shape != observed.shape:
            sizes = f"{list(declared.shape)} and has {list(observed.shape)}"
            notes.append(f"output {value.name!r} is declared with the sizes {sizes}: those that it has count")
    return notes


def _errors(outputs: Values, expected: Values) -> dict[str, Noise]:
    """The error of each output, by name; infinite where it overflows."""
    return {
        name: Noise(relative_error(output, expected[name]).relative, differing(output, expected[name]))
        for name, output in outputs.items()
    }


def _errors_over(reference: Reference, pairs: Sequence[tuple[Values, Values]]) -> dict[str, Noise]:
    """The largest error of each output of ``reference`` over ``pairs`` of inputs and outputs."""
    first, *others = (_errors(reference.run_named(feeds), expected) for feeds, expected in pairs)
    return _largest(others, first)


def _largest(noises: Iterable[Mapping[str, Noise]], least: Mapping[str, Noise]) -> dict[str, Noise]:
    """For each output the largest, at ``least`` what is given."""
    largest = dict(least)
    for noise in noises:
        largest = {name: one | noise[name] for name, one in largest.items()}
    return largest


def _noise(
    model: onnx.ModelProto,
    pairs: Sequence[tuple[Values, Values]],
    repeated: Mapping[str, Noise],
    threads: int,
    timeout_s: float | None,
    moving: Callable[[], Moved],
) -> tuple[dict[str, Noise], list[str]]:
    """The noise of each output, with the error of a second run as its least value, and notes for the user.

    It is the largest over ``pairs`` of inputs and outputs: where steps of a quantiser or a choice decide, one sample
    may lie on none and the next on many. The changes by ONNX Runtime's optimisations count as noise only as far as
    rounding explains them: some optimisations are wrong on some models, and must not excuse a library's error.
    """
    random = [name for name, noise in repeated.items() if noise.error > INCOMPARABLE]
    noise = {name: RANDOM if name in random else one for name, one in repeated.items()}
    remarks = [f"output {name!r} differs from run to run: it is not compared" for name in random]
    changed, moved = (dict.fromkeys(noise, Noise()) for _ in range(2))
    try:
        changed = _errors_over(Reference(model, threads, optimised=True, timeout_s=timeout_s), pairs)
    except InputError as failure:
        remarks.append(f"with its own optimisations {failure}: it runs without them")
    coarse = _rounds_coarsely(model) or chooses(model) or cancels(model)
    if not coarse and max((one.error for one in changed.values()), default=0.0) <= NORMALISED:
        return _largest([changed], noise), remarks
    try:
        moved = _largest((moving().noise(feeds, expected) for feeds, expected in pairs), moved)
    except InputError as failure:
        remarks.append(str(failure))
    for name, explains in moved.items():
        if changed[name].error <= max(NORMALISED, ROUNDING_ROOM * max(explains.error, repeated[name].error)):
            noise[name] |= changed[name]
        else:
            remarks.append(
                f"ONNX Runtime's own optimisations change output {name!r} by {changed[name].error:.1e}, where "
                f"rounding explains {explains.error:.1e}: with them its results are wrong"
            )
        if explains.overflows and name not in random:
            remarks.append(
                f"numbers of output {name!r} lie so near the limits of their type that rounding makes them infinite: "
                "how far it moves these is unknown, and infinity counts as wrong"
            )
        noise[name] |= explains
    return noise, remarks


def _own_rounding(
    model: onnx.ModelProto, pairs: Sequence[tuple[Values, Values]], threads: int, timeout_s: float | None
) -> dict[str, Noise]:
    """How far the outputs, by name, move if products of 4 and 8 bits round activations no more, which a file may ask
    ONNX Runtime to do. Empty if it does not."""
    if not any(_rounding_levels(model)):
        return {}
    exact = deepcopy(model)
    for level in _rounding_levels(exact):
        level.i = EXACT
    try:
        moved = _errors_over(Reference(exact, threads, timeout_s=timeout_s), pairs)
    except InputError:
        return {}
    return {name: one for name, one in moved.items() if one.error <= INCOMPARABLE}


def _rounding_levels(model: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    for node in (one for graph in graphs_of(model) for one in graph.node if one.op_type == "MatMulNBits"):
        yield from (one for one in node.attribute if one.name == "accuracy_level" and one.i == ROUNDS_TO_INT8)


def _rounds_coarsely(model: onnx.ModelProto) -> bool:
    """Whether a number may be rounded more coarsely than in float32, so that small differences become whole steps."""
    graphs = [model.graph, *model.functions]
    kinds = {node.op_type for graph in graphs for node in graph.node}
    narrow = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return (
        any("Quantize" in kind or kind.startswith("QLinear") or kind.endswith("Integer") for kind in kinds)
        or any(one.data_type in narrow for one in model.graph.initializer)
        or any(value.type.tensor_type.elem_type in narrow for value in values)
    )


def searchable(model: PreparedModel, threads: int) -> SearchableModel:
    """Normalise ``model``, as far as its outputs stay the same, and read it as a graph.

    Raises:
        NotSearchable: it runs, but cannot be split into nodes; the message gives the reason.
    """
    from collage_evo.graph.normalise.normalise import Rules, normalise  # onnxscript is slow to import

    distinct = _distinct_shapes(model.references)
    fixed = deepcopy(model.original)
    annotate(fixed, model.types)
    embed_constants(fixed, model.types.constants)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")  # one name may stand for sizes that differ: no pass may take them for equal
    reasons = []
    for rules in Rules:
        try:
            normalised = normalise(fixed, rules)
            del normalised.graph.value_info[:]  # observed below; what the passes infer about sequences is wrong
            errors = _errors_over(Reference(normalised, threads), distinct)
        except InputError as failure:
            reasons.append(f"{rules.value}: {failure}")
            continue
        least = max(NORMALISED, _roundoff(model.types))
        moved = {name: one.error for name, one in errors.items()}
        error = max((one for name, one in moved.items() if not model.excused[name].explains(one)), default=0.0)
        if error <= least:
            origin = name_nodes(model.original, normalised)
            seen, *others = (observe(normalised, feeds, threads) for feeds in _showing_sizes(distinct))
            annotate(normalised, static_types(normalised, seen, others))
            if model.unchecked:
                normalised.metadata_props.add(key=UNCHECKED_BRANCHES, value=", ".join(model.unchecked))
            graph = build_graph(normalised)
            recorded = _recorded(graph, model.references[0][0], threads)
            return SearchableModel(graph, max(moved.values(), default=0.0), rules.value, recorded, origin)
        reasons.append(f"{rules.value}: the outputs change by {error:.2g}")
    raise NotSearchable(f"the model cannot be split into operators ({'; '.join(reasons)})")


def _distinct_shapes(references: Sequence[tuple[Values, Values]]) -> list[tuple[Values, Values]]:
    """The first of ``references``, and the first of each other shape."""

    def shapes(feeds: Values) -> tuple[tuple[int, ...], ...]:
        return tuple(getattr(value, "shape", ()) for value in feeds.values())

    return list(firsts((shapes(pair[0]), pair) for pair in references).values())


def _showing_sizes(references: Sequence[tuple[Values, Values]]) -> list[Values]:
    """Inputs to observe types on: those of the first of ``references``, and of the others the smallest that together
    show each size that differs from it in any. All others show the same, and large inputs take seconds each."""

    def sizes(feeds: Values) -> set[tuple[str, int, int]]:
        shapes = {name: getattr(value, "shape", ()) for name, value in feeds.items()}
        return {(name, axis, size) for name, shape in shapes.items() for axis, size in enumerate(shape)}

    first, *others = (feeds for feeds, _ in references)
    chosen, shown = [first], set[tuple[str, int]]()
    for feeds in sorted(others, key=lambda feeds: sum(getattr(value, "size", 0) for value in feeds.values())):
        differing = {(name, axis) for name, axis, _ in sizes(feeds) - sizes(first)}
        if not differing <= shown:
            chosen.append(feeds)
            shown |= differing
    return chosen


def _roundoff(types: StaticTypes) -> float:
    """Unit roundoff of the narrowest type of floats in the model."""
    kinds = {tensor.dtype for tensor in types.tensors.values()}
    return max((roundoff for dtype, roundoff in ROUNDOFF.items() if dtype in kinds), default=0.0)


def _recorded(graph: Graph, feeds: Values, threads: int) -> dict[str, Any]:
    """Values of integers, which may be indices, lengths or quantised values, and of the inputs of composites."""
    wanted = {name for node in graph.nodes if node.domain == COMPOSITE for name in node.inputs}
    wanted |= {name for name, tensor in graph.tensors.items() if not tensor.dtype.startswith(("float", "bfloat"))}
    wanted -= graph.constants.keys()
    return record(graph.model, feeds, wanted & graph.tensors.keys(), threads)
