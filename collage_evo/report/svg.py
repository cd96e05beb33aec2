"""SVG helpers for pictures of measurements: axis ticks, text, and boxes that must not overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

LETTER, LINE = 6.4, 14.0
"""Approximate size of a letter and of a line of text, in pixels."""


@dataclass(frozen=True)
class Box:
    """An occupied rectangle, in pixels; a line is a thin one."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        across = self.left < other.right and self.right > other.left
        return across and self.top < other.bottom and self.bottom > other.top

    def inside(self, other: Box) -> bool:
        """Whether it lies completely within ``other``."""
        across = self.left >= other.left and self.right <= other.right
        return across and self.top >= other.top and self.bottom <= other.bottom


def text_box(x: float, y: float, words: str, anchor: str) -> Box:
    """The box of a line of text whose base line is at ``y``."""
    wide = LETTER * len(words)
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    return Box(left, y - LINE + 3, left + wide, y + 4)


def text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    """A line of text as SVG."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


def wrapped(words: str, width: float) -> list[str]:
    """``words`` in lines of at most ``width`` pixels."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and LETTER * len(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers: powers of ten over a very wide range, 1, 2, 5, 10 ... over a wide one, else equal steps."""
    if low > 0.0 and high / low > 6.0:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        digits = (1, 2, 5) if high / low < 1e3 else (1,)
        found = [float(f"{digit}e{power}") for power in powers for digit in digits]
    else:
        rough = (high - low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
        found = [float(f"{count * step:.6g}") for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [tick for tick in found if low <= tick <= high]


def format_tick(value: float) -> str:
    """A round number as short as it can be written."""
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e")
