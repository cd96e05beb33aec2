"""The genome: for each node which match covers it, for each data edge whether equal engines on it merge."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Genome:
    """``choices[i]``: index in node i's candidates (modulo); ``merges[e]``: merge across edge e (parity)."""

    choices: tuple[int, ...]
    merges: tuple[int, ...]
