"""The contract of a backend: support for nodes and pieces, ``build`` to compile one, ``load`` to run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from collage_evo.backends.variants import DEFAULT, TargetLike, Variant, plain_name
from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, Tensor, members
from collage_evo.hardware.target import Target
from collage_evo.precision.quantise.form import Int8Form

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern

__all__ = [
    "YES",
    "Backend",
    "BuildFailure",
    "Built",
    "DynamicExecutable",
    "Executable",
    "Probe",
    "Support",
    "Target",
    "Tensors",
    "no",
]


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Probe:
    """Whether a backend can be used here; ``reason`` if not, with what to install."""

    available: bool
    version: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Support:
    """Yes, or no with the reason."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


YES = Support(True)
Tensors = Sequence[Tensor]
"""Inputs or outputs of a piece, in order."""


def no(reason: str) -> Support:
    """A refusal with its reason."""
    return Support(False, reason)


@dataclass(frozen=True)
class Built:
    """A compiled piece: the files in the working directory that ``load`` needs."""

    files: tuple[str, ...]


@dataclass(frozen=True)
class BuildFailure:
    """One line with the reason why a piece could not be compiled.

    ``needless``: the variant would run this model as another variant does, so that nothing is lost. ``declined``: the
    library might compile it, and this package does not take what it would compute. ``raw``: the reason is the
    library's own message, for its programmers.
    """

    reason: str
    needless: bool = False
    declined: bool = False
    raw: bool = False


class Executable(Protocol):
    """A loaded piece."""

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None]:
        """Return a call that reads ``inputs`` and writes ``outputs``, buffers that the caller owns and keeps alive.

        They are NumPy arrays, or for a variant of an accelerator what its package says, C-contiguous and in the order
        of the model's inputs and outputs. The call must read the inputs anew each time, must not change them, and
        should allocate what it reuses only once.

        A piece may be bound again, to other buffers: from then on only the latest call is used.
        """


@runtime_checkable
class DynamicExecutable(Executable, Protocol):
    """A loaded piece of a backend that ``TakesOpenShapes``."""

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs that the caller owns, for a piece with tensors that are not static and have no buffer."""


UNCHECKED = "no input was found that takes both of its branches, so results are not checked in one"


class Backend(ABC):
    """A library that compiles and runs pieces of a model. Stateless: one object may serve many threads.

    A backend has to define ``name`` and the five abstract methods. The other methods have defaults that are right for
    most. Optional capabilities are in ``capabilities.py``. Heavy libraries are imported inside the methods that use
    them, never at module level.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    """The library's own spelling of its name, for sentences; ``name`` where that is empty."""
    extra: ClassVar[str] = ""
    """The optional dependency of collage-evo that installs it; empty for a backend from elsewhere."""
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT,)
    """The ways in which it runs pieces, on which devices and in which arithmetic."""
    as_it_comes: ClassVar[Variant] = DEFAULT
    """How it runs a whole model for a user who gives it a file and a number of threads and sets nothing else.

    A library that reads ONNX files itself has a variant for that, not among ``variants``: no search takes it.
    """
    maps_weights: ClassVar[bool] = False
    """Whether ``build`` takes a model whose large initializers are in files (``graph/ir/weights.py``); any other
    backend gets them in the message."""
    portable: ClassVar[bool] = False
    """Whether pieces of the variant ``default`` hold no compiled code, and so run on any processor."""
    gives_reference: ClassVar[bool] = False
    """Whether the results of all others are checked against this library's."""
    execution_providers: ClassVar[Mapping[str, str]] = {}
    """For each device the execution provider of ONNX Runtime that the library is, if it is one."""

    @abstractmethod
    def probe(self) -> Probe:
        """The library's version, or why it cannot be used. Must be quick: no compilation."""

    def patterns(self) -> tuple[Pattern, ...]:
        """The shapes of subgraph that the backend can take as one piece: by default those that fit most libraries."""
        from collage_evo.patterns.common import general_patterns  # serving does not need it

        return general_patterns()

    @abstractmethod
    def supports_node(self, graph: Graph, node: Node) -> Support:
        """Whether this operator, with its attributes, types and shapes, can be part of a piece."""

    def known_wrong(self, graph: Graph, node: Node) -> str:
        """Why results of this operator would be wrong; empty if no fault is known.

        Called for every operator of a whole model, in bodies too, before the library gets the model: a check runs
        with some inputs, and reaches neither every branch nor every number. Unknown sizes are -1; a shape of unknown
        rank has none.
        """
        return ""

    def guards(self, variant: Variant) -> bool:
        """Whether pieces of ``variant`` raise where ONNX Runtime does for an index outside a tensor.

        A backend that does not takes no operator whose indices may be anything, and where they are an input of the
        model, each request is checked before it runs.
        """
        return False

    def bits(self, variant: Variant) -> int:
        """How many bits of a 64-bit integer pieces of ``variant`` compute with.

        Where that is 32 and such integers are an input of the model, each request is checked before it runs.
        """
        return 64

    def takes(self, graph: Graph, node: Node) -> Support:
        """Whether this operator can be part of a piece: it is supported, and its indices stay inside its tensors."""
        verdict = self.supports_node(graph, node)
        if verdict and graph.has_unchecked_branches and not self.gives_reference and _branches(node):
            return no(UNCHECKED)
        if not verdict or any(map(self.guards, self.variants)):
            return verdict
        from collage_evo.graph.check.indices import stray_index  # serving does not need it

        stray = stray_index(graph, node)
        return no(stray) if stray else verdict

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that the backend can build for and run on."""
        return tuple(dict.fromkeys(variant.device for variant in self.variants))

    def variant(self, name: str) -> Variant:
        """The variant of that name; for the name of rewritten pieces, the variant that compiles them, so renamed.

        Raises:
            InputError: there is none.
        """
        plain = plain_name(name)
        for variant in (*self.variants, self.as_it_comes):
            if variant.name == plain:
                return variant if name == plain else replace(variant, name=name)
        raise InputError(f"{self.name}: there is no variant {name}")

    def like_defaults(self, target: TargetLike) -> Variant | None:
        """The variant, of those that a search may choose, that computes with the library's defaults.

        None where there is none on the target's own device, or the library does not read ONNX files itself.
        """
        first = next((variant for variant in self.variants if variant.device == target.device), None)
        return first if first is not None and self.runs_any_model(first) else None

    def builder(self, variant: Variant) -> Variant:
        """The variant that compiles what ``variant`` loads: ``build`` gets that one."""
        return self.variant(variant.built_as) if variant.built_as else variant

    def version_of(self, variant: Variant) -> str:
        """Version of the stored pieces of ``variant``; pieces of another version are not run."""
        return self.probe().version

    def int8_form(self, base: str) -> Int8Form | None:
        """The int8 form of pieces that the variant ``base`` builds; None if it takes none."""
        forms = (variant.int8_form for variant in self.variants if variant.base == base and variant.int8_form)
        return next(forms, None)

    def declines(self, variant: Variant) -> str:
        """Why this processor cannot run ``variant``, or gains nothing by it; empty otherwise. Must be quick."""
        return ""

    def runs_any_model(self, variant: Variant) -> bool:
        """Whether ``variant`` runs most whole models well, without long compilation.

        Such a variant is timed first, so that there is an answer early, and slower ones stop soon.
        """
        return False

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """The variants that differ on ``nodes``: equal ones need not be measured twice."""
        return self.variants

    def runs_on_after_fork(self, variant: Variant, threads: int) -> bool:
        """Whether a piece loaded with ``threads`` threads runs in a forked process, which has only one thread."""
        return True

    def supports(self, graph: Graph, nodes: NodeSet) -> Support:
        """Whether ``nodes`` together can be built as one piece."""
        verdicts = (self.takes(graph, graph.nodes[index]) for index in members(nodes))
        return next((verdict for verdict in verdicts if not verdict), YES)

    def environment(self, target: Target) -> Mapping[str, str]:
        """Environment variables that the library reads when it is first loaded, above all how its threads wait.

        Pools of several libraries share the target's cores. A pool's threads may spin while a piece runs; they must
        sleep soon after (some 10 microseconds), or they take a core from the next piece.
        """
        return {}

    @abstractmethod
    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        """Compile ``model`` into files under ``workdir``. A failure is returned, not raised."""

    @abstractmethod
    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> Executable:
        """Load what ``build`` wrote for ``variant``, with ``target.threads`` threads and without an ONNX file.

        Raises:
            InputError: ``inputs`` or ``outputs`` are not what the piece was built for, as far as the library checks.
        """


def _branches(node: Node) -> bool:
    return any(proto.op_type == "If" for proto in node.protos)
