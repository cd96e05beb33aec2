"""Selection of the backends and variants that take part in a run, and the check that its accelerator is there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from collage_evo.backends.base import Backend
from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.backends.registry import get_backend, probe_all, probe_backend
from collage_evo.backends.tuning import Tunable
from collage_evo.backends.variants import Arithmetic, TargetLike, Variant, plain_name, serves, takes_part
from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.extras import install
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.hardware.accelerator import accelerator_of
from collage_evo.hardware.target import CPU
from collage_evo.multimap import multimap
from collage_evo.precision.transforms.edits import Numerics, numerics_of

if TYPE_CHECKING:
    from collage_evo.patterns.match import Part

_CPU_CONFIGURATION = "a CPU configuration such as configs/resnet_cpu.yaml"


def select_backends(names: Sequence[str], target: TargetLike) -> tuple[Backend, ...]:
    """The backends in ``names``; every usable one that serves ``target`` when none is named.

    Backends that run only on the host serve every target; at least one runs on its accelerator, if it has one.

    Raises:
        ConfigError: a name is not known, or is of a backend that needs more threads than it has, or all names
            are of backends that run no whole model.
        UnavailableError: a backend asked for by name cannot be used or does not serve ``target``, or none runs on it.
    """
    if not names:
        return usable_backends(target)
    for name in names:
        if not (probe := probe_backend(name)).available:
            raise UnavailableError(f"backend '{name}' cannot be used: {probe.reason}")
    chosen = tuple(get_backend(name) for name in dict.fromkeys(names))
    for backend in chosen:
        if not any(serves(variant, target) for variant in backend.variants):
            served = ", ".join(backend.devices)
            raise UnavailableError(
                f"backend '{backend.name}' does not serve target {target.device}: it serves {served}"
            )
        if isinstance(backend, StandsOnOthers) and target.threads < backend.least_threads:
            raise ConfigError(
                f"backend '{backend.name}' needs {backend.least_threads} threads or more: set target.threads, "
                "or leave it out of backends.use"
            )
    if all(isinstance(backend, StandsOnOthers) for backend in chosen):
        raise ConfigError(f"backends.use: {', '.join(b.name for b in chosen)} runs no whole model: add a library")
    _require_one_on(target, {backend.name: _why_not_on(target, backend) for backend in chosen})
    return tuple(_on_threads(backend, target) for backend in chosen)


def usable_backends(target: TargetLike) -> tuple[Backend, ...]:
    """Every backend that can be used here and serves ``target``, on as many threads as it has.

    At least one runs on its accelerator, if it has one.

    Raises:
        UnavailableError: there is none.
    """
    probes = probe_all()
    available = (get_backend(name) for name, probe in probes if probe.available)
    usable = tuple(b for b in available if not isinstance(b, StandsOnOthers) or target.threads >= b.least_threads)
    if all(isinstance(backend, StandsOnOthers) for backend in usable):
        raise UnavailableError(f"no backend is usable here: {install('cpu')}")
    reasons = {name: probe.reason for name, probe in probes if not probe.available}
    _require_one_on(target, reasons | {backend.name: _why_not_on(target, backend) for backend in usable})
    return tuple(_on_threads(b, target) for b in usable if any(serves(variant, target) for variant in b.variants))


def half_installed(target: TargetLike) -> dict[str, str]:
    """Unusable backends for ``target`` whose library is installed, by name with what is missing."""
    return {
        name: probe.reason
        for name, probe in probe_all()
        if not probe.available and probe.version and any(serves(v, target) for v in get_backend(name).variants)
    }


def _on_threads(backend: Backend, target: TargetLike) -> Backend:
    return backend.on_threads(target.threads) if isinstance(backend, StandsOnOthers) else backend


def _why_not_on(target: TargetLike, backend: Backend) -> str:
    """Why none of its variants runs on the target's own device here; empty if one does."""
    parts = multimap((backend.declines(one), one.name) for one in backend.variants if one.device == target.device)
    if "" in parts:
        return ""
    if len(parts) == 1:
        return next(iter(parts))
    every = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in parts.items())
    return every or f"no variant for {target.device}"


def _require_one_on(target: TargetLike, reasons: Mapping[str, str]) -> None:
    """Require a backend on the target's own device; ``reasons``: by backend why none of its variants runs there."""
    if not all(reasons.values()):
        return
    alike = multimap((reason, name) for name, reason in sorted(reasons.items()))
    parts = [f"{', '.join(names)}: {reason}" for reason, names in alike.items()]
    instead = "mend one of these" + ("" if target.device == CPU else ", or use " + _CPU_CONFIGURATION)
    raise UnavailableError(f"target {target.device}: no backend runs on it here ({'; '.join(parts)}); {instead}")


def whole_variants(backend: Backend, target: TargetLike | None, tolerance: float) -> tuple[Variant, ...]:
    """The variants of ``backend`` that take part with whole models, into which nothing is written."""
    if isinstance(backend, StandsOnOthers):
        return ()
    whole = (variant for variant in backend.variants if not variant.writes)
    return tuple(v for v in whole if takes_part(v, target, tolerance) and not backend.declines(v))


def piece_variants(
    backend: Backend,
    graph: Graph,
    nodes: NodeSet,
    target: TargetLike | None,
    tolerance: float,
    ranges: bool = False,
    left_out: Collection[tuple[str, str]] = (),
) -> tuple[Variant, ...]:
    """The variants of ``backend`` that take part with ``nodes`` and differ there.

    ``ranges``: whether there are calibrated ranges; without them only quantisers that find ranges at run time do.
    ``left_out``: excluded backends and variants; variants that compile as one of these are excluded too.
    """
    from collage_evo.graph.check.indices import stray_index  # serving does not need it

    variants = [variant for variant in backend.variants_of(graph, nodes) if takes_part(variant, target, tolerance)]
    guarded = [variant for variant in variants if backend.guards(variant)]
    if guarded != variants and any(stray_index(graph, graph.nodes[index]) for index in members(nodes)):
        variants = guarded
    usable = (v for v in variants if ranges or not v.needs_ranges)
    included = (v for v in usable if not {(backend.name, v.name), (backend.name, v.base)}.intersection(left_out))
    return tuple(variant for variant in included if not backend.declines(variant))


def exact_arithmetic(part: Part) -> bool:
    """Whether a match or a region computes in float32 throughout.

    Results of such pieces differ only by rounding, and are wrong if they differ by more; the error of others depends
    on their arithmetic and is measured.
    """
    return not part.numerics and arithmetic_of(*part.family) is Arithmetic.FLOAT32


def arithmetics_of(part: Part) -> Numerics:
    """The nodes of a match or a region by arithmetic: that written into them, else that of the variant."""
    return numerics_of(*part.numerics, (arithmetic_of(*part.family), part.nodes))


def arithmetic_of(backend: str, variant: str) -> Arithmetic:
    """A variant's arithmetic. A tuned variant is not among its backend's own: its kernels are float32."""
    library = get_backend(backend)
    arithmetics = {v.name: v.arithmetic for v in (library.as_it_comes, *library.variants)}
    return arithmetics.get(plain_name(variant), Arithmetic.FLOAT32)


def require_tuners(backends: Sequence[Backend], trials: Iterable[str]) -> None:
    """Make sure that every backend in ``trials`` takes part and has something to tune.

    Raises:
        ConfigError: it does not.
    """
    names = {backend.name: backend for backend in backends}
    for name in trials:
        if name not in names:
            raise ConfigError(f"backends.{name}.trials: {name} does not take part; there are {', '.join(names)}")
        if not isinstance(names[name], Tunable):
            raise ConfigError(f"backends.{name}.trials: {name} has nothing to tune; leave the key out")


def require_accelerator(target: TargetLike) -> None:
    """Make sure that the target's accelerator is there, if it has one.

    Raises:
        UnavailableError: it is not there; the message says what is missing and what to use instead.
    """
    if target.device == CPU:
        return
    try:
        accelerator_of(target.device).require()
    except UnavailableError as missing:
        raise UnavailableError(f"target {target.device}: {missing}, or use {_CPU_CONFIGURATION}") from None
