"""Drawn text for tasks of reading: random words, fonts and colours, and images with wear.

Fonts are those that matplotlib ships, so that images are the same on every machine with the same Pillow.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageFilter, ImageFont

FONTS = (
    "DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-Italic.ttf", "DejaVuSansMono.ttf", "STIXGeneral.ttf", "STIXGeneralBol.ttf", "STIXGeneralItalic.ttf",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-./:%+#"


def words(rng: np.random.Generator, least: int, most: int) -> str:
    """Some words and numbers, ``least`` to ``most`` characters together, as on labels and bills."""
    text = ""
    length = int(rng.integers(least, most + 1))
    while len(text) < length:
        letters = LETTERS if rng.random() < 0.7 else SIGNS
        word = "".join(rng.choice(list(letters), int(rng.integers(2, 9))))
        text = f"{text} {word.capitalize() if rng.random() < 0.3 else word}".strip()
    return text[:length].strip()


def font(rng: np.random.Generator, size: int) -> ImageFont.FreeTypeFont:
    """One of the fonts, ``size`` pixels high."""
    file = Path(matplotlib.get_data_path(), "fonts", "ttf", str(rng.choice(FONTS)))
    return ImageFont.truetype(str(file), size)


def paper(rng: np.random.Generator) -> tuple[int, int, int]:
    """A light colour."""
    shade = rng.integers(170, 256, 3)
    return int(shade[0]), int(shade[1]), int(shade[2])


def ink(rng: np.random.Generator) -> tuple[int, int, int]:
    """A dark one."""
    shade = rng.integers(0, 110, 3)
    return int(shade[0]), int(shade[1]), int(shade[2])


def worn(rng: np.random.Generator, image: Image.Image) -> Image.Image:
    """Blurred and noisy, each more or less."""
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.0, 1.2))))
    noise = rng.normal(0.0, rng.uniform(0.0, 28.0), (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))
