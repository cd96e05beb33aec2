"""Words for internal names in reports: libraries, precisions, times, ratios and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import arithmetic_of
from collage_evo.backends.variants import DEFAULT, Arithmetic, engine_name, plain_name
from collage_evo.errors import CollageError
from collage_evo.genome.failure import Failure, Fault
from collage_evo.multimap import multimap
from collage_evo.search.evolution.origin import Origin, Way

TINY = 1e-4
"""Errors below this are written as powers of ten: zeros behind the point are hard to count."""
MOST_ALIKE = 3
"""Inputs of equal shape that are all named: a decoder's cache has dozens."""

COUNTS = 0.05
"""A call that adds a smaller share of a run's time is not mentioned: repeated timings differ by as much."""
SIMPLIFIED = " on the simplified graph"
"""Follows the words of a placement that a library on the user's own file shares."""
_WAYS = {
    Way.DYNAMIC_PROGRAM: "the fastest by the measured times of its regions",
    Way.NEXT_COVER: "nearly the fastest by the measured times of its regions",
    Way.FRONT_COVER: "the fastest for its error, by the measured times of its regions",
    Way.DIVERSE_COVER: "fast by the measured times of its regions, and unlike the others",
    Way.SINGLE: "as many operators as possible in",
    Way.REWRITTEN: "operators written in another way that computes the same, in",
    Way.MIXTURE: "mixed precision,",
    Way.GREEDY: "each operator in the first library that takes it, of",
    Way.TRANSFERRED: "carried over from an earlier run",
    Way.MUTATION: "a variation of a fast one",
    Way.CROSSOVER: "two fast ones combined",
    Way.CLIMB: "a variation that promised to be faster",
    Way.SURROGATE_COVER: "the fastest by what whole models had taken",
    Way.RANDOM: "drawn at random",
}
"""Ways to placements, in words; the engine follows where they are of one."""


@dataclass(frozen=True)
class Part:
    """A number of operators that one library computes in a variant's precision, some of them in ``others``, by
    name."""

    backend: str
    variant: str
    operators: int
    others: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, backend: str, variant: str, precisions: Iterable[str]) -> Part:
        """The part for operators with these precisions."""
        counts, computes_in = Counter(precisions), arithmetic(backend, variant).value
        return cls(backend, variant, counts.total(), {name: n for name, n in counts.items() if name != computes_in})

    def plus(self, other: Part) -> Part:
        """The sum of both."""
        others = dict(Counter(self.others) + Counter(other.others))
        return Part(self.backend, self.variant, self.operators + other.operators, others)


def title(backend: str) -> str:
    """A library's name in its own spelling."""
    known = known_backend(backend)
    return (known and known.title) or backend


def known_backend(name: str) -> Backend | None:
    """The backend of that name; None for one that is not here: a result may come from a machine with others."""
    try:
        return get_backend(name)
    except CollageError:
        return None


def arithmetic(backend: str, variant: str) -> Arithmetic:
    """The arithmetic of a variant; float32 if the backend is not known here."""
    try:
        return arithmetic_of(backend, variant)
    except CollageError:
        return Arithmetic.FLOAT32


def format_engine(backend: str, variant: str) -> str:
    """A library in a precision; of several variants with the same arithmetic all but the first show their own
    name."""
    computes, way = arithmetic(backend, variant), _way(backend, variant)
    return f"{title(backend)} in {computes.value}{f' ({way})' if way else ''}"


def format_name(engine: str) -> str:
    """The same for ``backend/variant``, or only ``backend``, as results name it."""
    backend, _, variant = engine.partition("/")
    return format_engine(backend, variant or "default")


def _way(backend: str, variant: str) -> str:
    """What distinguishes ``variant`` from the backend's first one of the same precision and device; empty for that
    one."""
    if (known := known_backend(backend)) is None:
        return "" if variant == "default" else variant
    plain, variants = plain_name(variant), known.variants
    its = next((candidate for candidate in variants if candidate.name == plain), None)
    if its is None:
        return plain.partition("-")[0]
    alike = [v.name for v in variants if (v.arithmetic, v.device) == (its.arithmetic, its.device)]
    return "" if alike[0] == plain else plain


def describe_parts(parts: Sequence[Part]) -> str:
    """Number of operators by library and precision, as one phrase."""
    alike = multimap(((part.backend, plain_name(part.variant)), part) for part in parts)
    groups = sorted((reduce(Part.plus, ones) for ones in alike.values()), key=lambda part: -part.operators)
    pieces = f", in {len(parts)} regions" if len(parts) > 1 else ""
    if len(groups) == 1:
        return _describe_single(groups[0]) + pieces
    of, texts = f" of {sum(group.operators for group in groups)}", []
    for group in groups:
        others = "".join(f", {count} of them in {name}" for name, count in group.others.items())
        texts.append(f"{format_engine(group.backend, group.variant)} ({group.operators}{of} operators{others})")
        of = ""
    return f"{', '.join(texts[:-1])} and {texts[-1]}{pieces}"


def _describe_single(part: Part) -> str:
    if list(part.others.values()) == [part.operators]:
        return f"{title(part.backend)} in {next(iter(part.others))}"
    counts = [f"{count} of {part.operators} operators in {name}" for name, count in part.others.items()]
    return format_engine(part.backend, part.variant) + (f" with {' and '.join(counts)}" if counts else "")


def format_ms(ms: float | None) -> str:
    """A time in three significant digits, ms; a dash for none."""
    return "-" if ms is None else format_ratio(ms)


def format_ratio(ratio: float) -> str:
    """Three significant digits, never as a power of ten, and none cut off before the point."""
    if abs(ratio) >= 99.95:
        return f"{ratio:.0f}"
    text = f"{ratio:#.3g}"
    return f"{ratio:.9f}".rstrip("0") if "e" in text else text.rstrip(".")


def format_number(error: float | None) -> str:
    """An error in two digits, as ``0.017``; a metric's may be below zero."""
    if error is None:
        return "not known"
    if error == 0.0:
        return "0"
    return f"{error:.1e}" if abs(error) < TINY else f"{float(f'{error:.1e}'):.6f}".rstrip("0").rstrip(".")


def call_counts(run_ms: float, call_ms: float | None) -> bool:
    """Whether a call that adds ``call_ms`` to a run is mentioned."""
    return (call_ms or 0.0) > COUNTS * run_ms


def format_tick(value: float) -> str:
    """A round number as short as it can be written."""
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e")


def format_count(number: int, what: str) -> str:
    """A number of things: ``1 sample``, ``2 samples``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def format_shapes(shapes: Mapping[str, Sequence[int | str] | None]) -> str:
    """Shapes of inputs by name, sizes or their ranges; None for any. Of more than ``MOST_ALIKE`` equal ones it names
    the first input."""
    texts = {name: "any" if shape is None else f"[{', '.join(map(str, shape))}]" for name, shape in shapes.items()}
    parts = []
    for written, names in multimap((text, name) for name, text in texts.items()).items():
        many = len(names) > MOST_ALIKE
        parts += [f"{names[0]} and {len(names) - 1} more {written}"] if many else [f"{n} {written}" for n in names]
    return ", ".join(parts)


def describe_request(budget: float | str) -> str:
    """A budget as the user wrote it; decibels are a number by now, which may have many digits."""
    return f"{budget:.4g}" if isinstance(budget, float) else budget


def format_time(seconds: float) -> str:
    """A waiting time: ``40 s``, ``3 min``."""
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def capitalised(text: str) -> str:
    """With a capital first letter, the rest unchanged; not for text that may begin with a library's name."""
    return text[:1].upper() + text[1:]


def in_words(origin: Origin, what: str = "") -> str:
    """Origin of a placement, in words; for one of several with this origin, ``what`` it is in place of the engine."""
    way, backends = _WAYS[origin.way], ", ".join(origin.backends)
    if what:
        return f"{way.rstrip(',')}: {what}"
    return f"{way} {engine_name(backends, origin.variant or DEFAULT.name)}" if backends else way


_WHAT = {
    Fault.BUILD: "cannot compile it",
    Fault.DECLINED: "takes no part, as this program declines it",
    Fault.CRASH: "crashed over it",
    Fault.HANG: "did not come to an end with it",
    Fault.MEMORY: "needs more memory for it than there is (fitness.memory_gb)",
    Fault.WRONG_NUMBERS: "computes wrong numbers with it",
    Fault.NOT_FINITE: "gives infinite numbers or none",
    Fault.OVERWRITTEN_INPUT: "overwrites its inputs",
    Fault.RAISED: "stopped with an error",
    Fault.REFUSED: "cannot run it here",
    Fault.FAR_BEHIND: "is far slower than the best",
    Fault.WORKERS_DIED: "was not timed, as the processes that measure had ended",
    Fault.SYSTEM: "was not timed, as the operating system refused what it needs",
    Fault.CLOSED: "was not timed, as the run was over",
    Fault.NO_TIME: "was not tried",
    Fault.NEEDLESS: "was not tried",
    Fault.KNOWN: "was not tried",
}


def describe_failure(failure: Failure, backend: str = "", variant: str = "") -> str:
    """Why there is no time for a whole model in ``backend``, in ``variant`` if it has others; without the library's
    own message."""
    what, message = _WHAT[failure.fault], failure.message.removeprefix(f"{backend}: ")
    if message and failure.fault is Fault.FAR_BEHIND:
        return message
    who = format_engine(backend, variant) if variant else title(backend)
    reason = f"{who} {what}" if backend else what
    return f"{reason}: {message}" if message else reason


def describe_unfit(failures: Iterable[Failure]) -> dict[str, int]:
    """Number of placements without a valid time, for each kind of reason, the commonest first."""
    kinds = Counter(_KINDS.get(failure.fault, _WHAT[failure.fault]) for failure in failures)
    return dict(kinds.most_common())


_KINDS = {
    Fault.BUILD: "a library cannot compile a part of it",
    Fault.DECLINED: "this program declines a part of it for a library",
    Fault.CRASH: "a library crashed",
    Fault.HANG: "it did not come to an end",
    Fault.MEMORY: "it needs more memory than there is",
    Fault.WRONG_NUMBERS: "its error is larger than any that could be the answer",
    Fault.NOT_FINITE: "it gives infinite numbers or none",
    Fault.OVERWRITTEN_INPUT: "a library overwrites its inputs",
    Fault.RAISED: "a library stopped with an error",
    Fault.REFUSED: "it cannot run here",
    Fault.FAR_BEHIND: "it is far slower than the best, so it was not timed to the end",
}
