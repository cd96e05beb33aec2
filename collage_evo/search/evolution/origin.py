"""Origin of a placement in a search: the way that led to it, and the engine or backends that it is of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from collage_evo.backends.variants import DEFAULT
from collage_evo.codec import As

_SEED, _OF, _NEXT, _VARIANT = "seed:", ":", ",", "/"


class Way(StrEnum):
    """A way to a placement; its value is its name in checkpoints and results."""

    DYNAMIC_PROGRAM = "dp"
    """The cheapest cover, by the dynamic program."""
    NEXT_COVER = "dp-near"
    FRONT_COVER = "dp-front"
    """A cover on the hull of latency and another objective."""
    DIVERSE_COVER = "dp-diverse"
    SINGLE = "single"
    """An engine or a backend wherever it can."""
    REWRITTEN = "rewritten"
    MIXTURE = "ladder"
    """A mixture of precisions, mostly of one family."""
    GREEDY = "greedy"
    """Each operator in the first of several backends that takes it."""
    TRANSFERRED = "like"
    MUTATION = "mutation"
    CROSSOVER = "crossover"
    CLIMB = "climb"
    SURROGATE_COVER = "program"
    RANDOM = "random"


@dataclass(frozen=True)
class Origin:
    """Where a placement comes from.

    Attributes:
        way: how it was made.
        backends: of its engine or family, or those of a greedy partition in their order; none where any may be in it.
        variant: of its engine; empty for a whole backend, and for a family's default variant.
        seeded: whether the search measured it as a seed.
    """

    way: Way
    backends: tuple[str, ...] = ()
    variant: str = ""
    seeded: bool = False

    @classmethod
    def mixture(cls, family: tuple[str, str]) -> Origin:
        """Of a mixed-precision placement that is mostly of ``family``."""
        backend, variant = family
        return cls(Way.MIXTURE, (backend,), "" if variant == DEFAULT.name else variant)

    @property
    def as_seed(self) -> Origin:
        """The same, measured as a seed."""
        return replace(self, seeded=True)

    def __str__(self) -> str:
        engine = _NEXT.join(self.backends) + (f"{_VARIANT}{self.variant}" if self.variant else "")
        return (_SEED if self.seeded else "") + self.way + (f"{_OF}{engine}" if engine else "")

    @classmethod
    def parse(cls, text: str) -> Origin:
        """The origin of the text that ``str`` gives.

        Raises:
            ValueError: it is none, as the name of a library is none.
        """
        way, _, engine = text.removeprefix(_SEED).partition(_OF)
        backends, _, variant = engine.partition(_VARIANT)
        return cls(Way(way), tuple(filter(None, backends.split(_NEXT))), variant, text.startswith(_SEED))


OriginText = Annotated[Origin, As(str, Origin.parse)]
"""The type of a field that is an origin's text in JSON."""


def origin_in(name: str) -> Origin | None:
    """The origin by which a row of a result is named; None if it is named by a library."""
    try:
        return Origin.parse(name)
    except ValueError:
        return None
