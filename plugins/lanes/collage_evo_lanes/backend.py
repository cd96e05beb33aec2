"""The lanes backend: another backend builds a region's parts for a lane's cores, and lanes run them side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collage_evo.backends.base import (
    YES,
    Backend,
    BuildFailure,
    Built,
    Executable,
    Probe,
    Support,
    Target,
    Tensors,
    no,
)
from collage_evo.backends.capabilities import KeepsToCores
from collage_evo.backends.checks import require_borders, returns_failures
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import DEFAULT, Arithmetic, Variant, engine_name
from collage_evo.codec import from_json, to_json
from collage_evo.errors import ConfigError, InputError, UnavailableError
from collage_evo.files import BUILD_ANEW, read_json, reading
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.hardware.cores import own_cores
from collage_evo_lanes.load import LoadedLanes
from collage_evo_lanes.plan import LanePlan

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern

REVISION = 2
"""Revision of the execution of plans: pieces of another one are not used."""
_PLAN, _OPERATORS = "plan.json", "operators.json"


@dataclass(frozen=True)
class Engine:
    """A variant of another backend that builds and runs the parts, each for a lane's threads."""

    backend: str
    variant: str = DEFAULT.name
    arithmetic: Arithmetic = Arithmetic.FLOAT32

    @property
    def name(self) -> str:
        return self.backend if self.variant == DEFAULT.name else f"{self.backend}-{self.variant}"


ENGINES = (
    Engine("openvino"),
    Engine("openvino", "bf16", Arithmetic.BFLOAT16),
    Engine("onnxruntime"),
    Engine("ncnn"),
    Engine("tvm"),
)
"""Each library's usual variants: its other ones are for pieces of one operator."""
DESCRIBED = (Engine("onnxruntime"),)
"""Engines whose library has a setting for the cores of each part: these run in lanes of several cores too."""
WIDTHS = (2, 4, 8, 16, 32)
"""Cores of such a lane."""


@dataclass(frozen=True)
class Way:
    """What a variant stands for: an engine and the number of cores of a lane."""

    engine: Engine
    width: int = 1

    @property
    def variant(self) -> Variant:
        wide = f"-{self.width}-cores" if self.width > 1 else ""
        return Variant(f"{self.engine.name}{wide}", self.engine.arithmetic)


class LanesBackend(Backend):
    """As many lanes as the target has threads, each on a core with parts of one thread; or fewer, wider lanes.

    A variant is an engine, by its arithmetic too: ``openvino`` runs branches side by side, ``onnxruntime-2-cores`` in
    half as many lanes of two cores each.
    """

    name: ClassVar[str] = "lanes"
    title: ClassVar[str] = "lanes (parts side by side)"
    ways: ClassVar[tuple[Way, ...]] = (
        *(Way(engine) for engine in ENGINES),
        *(Way(engine, width) for width in WIDTHS for engine in DESCRIBED),
    )
    variants: ClassVar[tuple[Variant, ...]] = tuple(way.variant for way in ways)
    least_threads: ClassVar[int] = 2

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads

    def on_threads(self, threads: int) -> Backend:
        return type(self)(threads)

    def probe(self) -> Probe:
        reasons = [_missing(name) for name in dict.fromkeys(way.engine.backend for way in self.ways)]
        if all(reasons):
            return Probe(False, reason="none of its engines is usable: " + "; ".join(reasons))
        return Probe(True, str(REVISION))

    def version_of(self, variant: Variant) -> str:
        backend, chosen = self._engine(variant)
        return f"{REVISION} {backend.name} {backend.version_of(chosen)}"

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo_lanes.patterns import lane_patterns  # serving does not need it

        return lane_patterns()

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return self._any_engine(lambda backend: backend.takes(graph, node))

    def supports(self, graph: Graph, nodes: NodeSet) -> Support:
        return self._any_engine(lambda backend: Backend.supports(backend, graph, nodes))

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """Variants whose engine takes every operator and has that variant on ``nodes``, if a cut is worth trying."""
        from collage_evo_lanes.patterns import branches_pay  # serving does not need it

        pays = branches_pay(graph, nodes)
        return tuple(way.variant for way in self.ways if pays and self.takes_part(way, graph, nodes))

    def takes_part(self, way: Way, graph: Graph, nodes: NodeSet) -> bool:
        """Whether its engine takes ``nodes``, and lanes of several cores are at least two and use all threads."""
        room = way.width == 1 or (self._threads % way.width == 0 and self._threads >= 2 * way.width)
        return room and _takes(way.engine, graph, nodes)

    def stands_on(self, variant: Variant) -> tuple[str, str]:
        engine = self._way(variant).engine
        return engine.backend, engine.variant

    def runs_on_after_fork(self, variant: Variant, threads: int) -> bool:
        """The engine's answer: a forked process makes new lane threads, but lacks the engine's."""
        backend, chosen = self._engine(variant)
        return backend.runs_on_after_fork(chosen, self._way(variant).width)

    def declines(self, variant: Variant) -> str:
        if reason := _missing(self._way(variant).engine.backend):
            return reason
        backend, chosen = self._engine(variant)
        return backend.declines(chosen)

    def guards(self, variant: Variant) -> bool:
        backend, chosen = self._engine(variant)
        return backend.guards(chosen)

    def bits(self, variant: Variant) -> int:
        backend, chosen = self._engine(variant)
        return backend.bits(chosen)

    def cut(self, graph: Graph, way: Way, lanes: int) -> tuple[LanePlan, tuple[onnx.ModelProto, ...]]:
        """The plan of ``graph``, a region's own, on ``lanes`` lanes, and a model for each part.

        Raises:
            InputError: the region cannot be cut so, or would not gain.
        """
        from collage_evo_lanes.cut import cut_branches  # serving does not need it

        return cut_branches(graph, lanes, way.width)

    @returns_failures()
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        from collage_evo.graph.convert.read import build_graph

        way = self._way(variant)
        plan, models = self.cut(build_graph(model), way, target.threads // way.width)
        (backend, chosen), files = self._engine(variant), [_PLAN, _OPERATORS]
        for number, part in enumerate(models):
            folder = _folder(workdir, number)
            folder.mkdir()
            built = backend.build(part, replace(target, threads=way.width), chosen, folder)
            if isinstance(built, BuildFailure):
                return BuildFailure(f"lanes: part {number}: {built.reason}")
            files += [f"{folder.name}/{name}" for name in built.files]
        (workdir / _PLAN).write_text(to_json(plan))
        operators = [[node.op_type for node in part.graph.node] for part in models]
        (workdir / _OPERATORS).write_text(to_json(operators))
        return Built(tuple(files))

    def load(self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors) -> Executable:
        way = self._way(variant)
        engine = way.engine
        plan = read_json(workdir / _PLAN, LanePlan, BUILD_ANEW)
        for names, tensors in ((plan.inputs, inputs), (plan.outputs, outputs)):
            own = [(plan.tensors[name].dtype, plan.tensors[name].shape) for name in names]
            require_borders(self.name, own, tensors)
        cores, parts = own_cores(target.threads) if way.width > 1 else (), []
        for number, part in enumerate(plan.parts):
            backend = engine_on(engine, cores[part.lane * way.width :][: way.width])
            sides = ([plan.tensors[name] for name in names] for names in (part.inputs, part.outputs))
            chosen, folder = backend.variant(engine.variant), _folder(workdir, number)
            # All on the calling thread, which may use all cores: OpenVINO stays on the cores that it first finds.
            parts.append(backend.load(folder, replace(target, threads=way.width), chosen, *sides))
        description = engine_name(engine.backend, engine.variant)
        return LoadedLanes(plan, parts, description, target.threads // way.width, way.width)

    def lanes(self, workdir: Path) -> tuple[tuple[str, ...], ...]:
        plan = read_json(workdir / _PLAN, LanePlan, BUILD_ANEW)
        with reading(workdir / _OPERATORS, BUILD_ANEW):
            counted = list(map(_counted, from_json((workdir / _OPERATORS).read_bytes(), tuple[tuple[str, ...], ...])))
            if len(counted) != len(plan.parts):
                raise ValueError(f"it is not of {len(plan.parts)} parts")
        lanes: list[list[str]] = [[] for _ in range(plan.lanes)]
        for part, waits, description in zip(plan.parts, plan.handoffs(), counted, strict=True):
            others = ", ".join(f"lane {lane}" for lane in sorted({plan.parts[other].lane for other in waits}))
            lanes[part.lane].append(f"after {others}: {description}" if others else description)
        return tuple(map(tuple, lanes))

    def _way(self, variant: Variant) -> Way:
        return next(way for way in self.ways if way.variant.name == variant.base)

    def _engine(self, variant: Variant) -> tuple[Backend, Variant]:
        """The engine that builds and runs the parts of ``variant``."""
        engine = self._way(variant).engine
        backend = get_backend(engine.backend)
        return backend, backend.variant(engine.variant)

    def _any_engine(self, ask: Callable[[Backend], Support]) -> Support:
        """Yes if one of the usable engines agrees, else every engine's reason."""
        reasons: dict[str, None] = {}
        for name in dict.fromkeys(way.engine.backend for way in self.ways):
            if _missing(name):
                continue
            if verdict := ask(get_backend(name)):
                return YES
            reasons[f"{name}: {verdict.reason}"] = None
        return no("; ".join(reasons) or "none of its engines is usable")


def _counted(operators: Iterable[str]) -> str:
    """Each kind of operator with its number."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(operators).items())


def _missing(backend: str) -> str:
    """Why an engine's library cannot be used here; empty if it can."""
    try:
        probe = get_backend(backend).probe()
    except (ConfigError, UnavailableError) as error:
        return str(error)
    return "" if probe.available else probe.reason


def engine_on(engine: Engine, cores: Sequence[int]) -> Backend:
    """The engine, loading parts whose threads stay on ``cores``, if any.

    Raises:
        InputError: its library has no setting for cores.
    """
    backend = get_backend(engine.backend)
    if not cores:
        return backend
    if not isinstance(backend, KeepsToCores):
        raise InputError(f"lanes: {engine.backend} cannot be told which cores are its own")
    return backend.keeping_to(cores)


def _takes(engine: Engine, graph: Graph, nodes: NodeSet) -> bool:
    if _missing(engine.backend):
        return False
    backend = get_backend(engine.backend)
    offered = {variant.name for variant in backend.variants_of(graph, nodes)}
    return engine.variant in offered and all(backend.takes(graph, graph.nodes[i]) for i in members(nodes))


def _folder(workdir: Path, number: int) -> Path:
    return workdir / f"part{number}"
