"""Genome: for each node which match covers it, for each data edge whether equal engines on it merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from collage_evo.codec import As


def _bits(text: str) -> tuple[int, ...]:
    return tuple(map(int, text))


@dataclass(frozen=True)
class Genome:
    """``choices[i]``: index in node i's candidates (modulo); ``merges[e]``: merge across edge e (parity)."""

    choices: tuple[int, ...]
    merges: Annotated[tuple[int, ...], As(lambda genes: "".join(str(gene & 1) for gene in genes), _bits)]
