"""Small models that a backend, if it takes them, must compute right: single operators and short regions."""

from collage_evo.testing.cases import frames, heavy, light, regions
from collage_evo.testing.cases.case import CASES

__all__ = ["CASES", "frames", "heavy", "light", "regions"]
