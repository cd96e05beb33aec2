"""Small models that a backend, if it supports them, must compute correctly: single operators and short regions."""

from collage_evo.testing.cases import heavy, light, regions, volumes
from collage_evo.testing.cases.case import CASES

__all__ = ["CASES", "heavy", "light", "regions", "volumes"]
