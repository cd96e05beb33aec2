"""Stages of runs and of commands that measure."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Stage(StrEnum):
    """A stage; its value is its name in ``result.json`` (``wall_seconds``). Those of a run come first, in its order.

    Attributes:
        words: description for people.
        usual_s: typical seconds in a run; 0 for a stage that most runs lack, None for one of no run.
        tunes: whether it tunes something, or measures for tuning only: the budget of a search excludes that time.
    """

    words: str
    usual_s: float | None
    tunes: bool

    def __new__(cls, value: str, words: str, usual_s: float | None = 0, tunes: bool = False) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.words, member.usual_s, member.tunes = value, words, usual_s, tunes
        return member

    MODEL = "model", "reading the model and running it once", 2
    OTHER_SHAPES = "any other shapes", "finding a library for inputs of other shapes"
    BASELINES = "baselines: single backends", "timing baselines: libraries on the whole model", 20
    THREADS = "fewer threads", "timing the baselines on fewer threads"
    NORMALISE = "normalising the model", "simplifying the model", 1
    NORMALISED = "single backends on the normalised model", "timing the baselines on the simplified model"
    CALIBRATE = "calibrating", "recording the ranges of values, for int8", 1
    SENSITIVITIES = (
        "what each operator loses in a lower precision",
        "finding what lower precision costs each operator",
        3,
    )
    FAMILIES = "early: operators in lower precisions", "timing operators in lower precisions", 3
    EARLY = "early: likely mixtures of precisions", "timing the likeliest mixed-precision placements", 4
    COSTS_BEFORE_TUNING = "costs of matches before tuning", "timing regions before tuning", 0, True
    TUNE_KERNELS = "tuning", "tuning kernels", 0, True
    COPIES = "costs of copies between host and device", "timing copies between processor and device"
    PROFILES = "costs from profiles", "timing each operator in each library", 8
    UNPROFILED = "costs of kernels that no profile has", "timing the operators that are left", 5
    BORDERS = "costs of borders: cuts of the model", "timing the way from one library to another", 8
    SEARCH = "search", "timing placements", 60
    TUNE_SEARCH = "tuning on what was learned", "tuning the search on what was learned", 0, True
    BUDGET_LEVELS = "placements for this budget", "timing placements for this budget"
    COMPILE = "compile", "compiling the most promising placements", 2
    FINAL = "final: taking turns", "comparing the best thoroughly", 20
    HELD_OUT = "held-out samples", "finding the error on held-out samples", 2
    SIZES = "latency by size", "timing the best on inputs of several sizes"
    VERIFY = "verify", "checking the artifact", 2
    OTHER_SPEED = "the answer's other speed", "timing it on all cores and on one share of them", 3
    SWEEP = "sweep", "running the trials", None
    COMPILE_FRONT = "compiling for this machine", "compiling for this machine", None
    COMPARE_BASELINES = "each library with its defaults", "preparing each library with its defaults", None
    COMPARE = "taking turns", "comparing the artifact with the libraries", None
    COMPARE_ERRORS = "errors on the samples", "finding the errors on the samples", None


RUN_STAGES = tuple(stage for stage in Stage if stage.usual_s is not None)
"""Stages of a run, in its order."""
