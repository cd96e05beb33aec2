"""Pruning rules: what a run does not try, gives up or leaves out because it is too slow, or errs too much, to matter.

Whoever decides takes the number from here, or from the configuration where ``key`` holds it, and the reason that is
recorded (``genome/failure.py``) names the rule. ``explain RUN --pruning`` lists the rules and what each pruned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One reason to spend no more time on something.

    Attributes:
        name: of the constant, in small letters.
        action: what happens: "not tried", "given up", ...
        condition: to what it happens; ``{}`` stands for the number.
        basis: where the number comes from: chosen, or measured by what.
        number: NaN where ``key`` holds it, or where there is none.
        key: of the configuration.
    """

    name: str
    action: str
    condition: str
    basis: str = "Chosen."
    number: float = math.nan
    key: str = ""

    def line(self, number: float) -> str:
        """The rule as people read it, with the ``number`` that holds for a run."""
        return f"{self.action}: {self.condition.format(f'{number:g}')}"


_KEY = "See the key's description."

# fmt: off
# Whole models on one library.
SLOW_BASELINE = Rule(
    "slow_baseline", "given up", "a single library that takes {} times as long as the best before it; its kernels "
    "are not timed one by one, and with its defaults it is not in the final comparison", _KEY,
    key="policy.single_give_up",
)
SLOW_VARIANTS = Rule(
    "slow_variants", "not tried", "a variant of a library of which another takes {} times as long as the best",
    number=10.0,
)
LONG_COMPILATION = Rule(
    "long_compilation", "not tried", "a library that may compile for long, with less time left for baselines than {} "
    "runs of the best take",
    "Chosen: TVM did not compile networks of 270, 500 and 1,200 ms a run within 35 s.", 150,
)
EXACT_LIBRARY = Rule(
    "exact_library", "not tried", "a library that computes in float32 only, and further variants in float32, after "
    "{} of backends.seconds, where the budget admits lower precisions of others",
    "Seen: on a network of 150 ms such baselines took a fifth of a run; TVM and ONNX Runtime's other layout took 1.3 "
    "to 2.6 times as long as the best in float32, mixtures in int8 0.6 times (held to AVX2).", 0.33,
)
UNREACHABLE_PRECISION = Rule(
    "unreachable_precision", "not tried", "a precision that cannot be as fast as another one that the library ran in",
    "The processor's peak rates (hardware/processor.py).",
)
EARLIER_RUN = Rule(
    "earlier_run", "not tried", "what failed in the run of --like, or was slower there than rule slow_engine permits",
    "A measurement of that run.",
)
COMPARED_LIBRARY = Rule(
    "compared_library", "left out", "a library that takes {} times as long as the fastest does not race in compare",
    "Chosen: its few runs are evidence enough.", 2.0,
)

# Engines on parts of the model.
SLOW_ENGINE = Rule(
    "slow_engine", "not tried", "what stands on an engine that takes {} times as long as the best, or fails; the "
    "engine itself is profiled after the others",
    "Chosen: it would have to win as much on parts only to draw level.", 1.5,
)
UNTIMED_ENGINE = Rule(
    "untimed_engine", "not tried", "an engine whose baseline was not measured within {} s", _KEY,
    key="backends.seconds",
)
SLOW_PRECISION = Rule(
    "slow_precision", "not tried", "a precision that takes {} times as long as float32 in a single library", _KEY,
    key="policy.precision_slower",
)
COARSE_PRECISION = Rule(
    "coarse_precision", "left out", "operators in a precision of whose error a whole model takes at most {} of the "
    "budget: whole pieces have more to gain", _KEY, key="policy.precision_coarse",
)
SPENT_PRECISION = Rule(
    "spent_precision", "left out", "whole pieces in a precision of whose error a whole model takes {} of the budget",
    _KEY, key="policy.precision_spent",
)
BATCH_DEPENDENT = Rule(
    "batch_dependent", "left out", "an engine in which the result of a row depends on the others of its batch, where "
    "the answer has to be batch invariant", "It computes one scale from all rows, in each run.",
)

# Costs.
SLOW_MATCH = Rule(
    "slow_match", "given up", "a match that takes {} times as long as the best known way to run its operators", _KEY,
    key="costs.far_behind",
)
SLOW_CUT = Rule(
    "slow_cut", "left out", "border probes on an engine that takes {} times as long as the fastest", number=2.0
)
SLOW_MODEL = Rule(
    "slow_model", "left out", "border probes of a model that takes {} ms on its fastest engine",
    "Chosen: eight of them took 25 s for one of 500 ms, and 15 s for one of 150 ms.", 60.0,
)

# Placements that a search proposes or measures.
LATE_SEED = Rule(
    "late_seed", "tried last", "seeds of an engine by itself that takes {} times as long as the best", number=2.0
)
EARLY_SEED = Rule(
    "early_seed", "tried later", "an engine for the whole model that is not predicted to take less than {} of the "
    "fastest baseline's time", number=0.9,
)
SLOW_CHILD = Rule(
    "slow_child", "not tried", "a random choice among children that are predicted to take {} times as long as the "
    "fastest", _KEY, key="policy.random_within",
)
SLOW_PLACEMENT = Rule(
    "slow_placement", "given up", "a placement that takes {} times as long as the best baseline", _KEY,
    key="fitness.give_up",
)
LOST_PAIR = Rule(
    "lost_pair", "given up", "a placement that takes {} times as long as the best in its first pair with the "
    "reference run", number=1.3,
)
LOST_PLACEMENT = Rule(
    "lost_placement", "given up", "a placement that takes {} times as long as the best is not judged on all samples, "
    "except mixtures before and after a search, and without a reference run it is timed no further once its first "
    "runs all do", number=1.1,
)
LARGE_ERROR = Rule(
    "large_error", "given up", "a placement whose error on few samples, without the worst of these, is {} times the "
    "budget, except mixtures before and after a search", number=1.5,
)
SLOW_JUDGING = Rule(
    "slow_judging", "given up", "a placement that takes {} s for the samples of the search",
    "Chosen: it is far too slow, and fails before it would time out.", 60.0,
)

# Mixtures.
SLOW_FAMILY = Rule(
    "slow_family", "not tried", "mixtures of a family of engines that is expected to take {} times as long as the "
    "fastest", number=1.25,
)
SMALL_GAIN = Rule(
    "small_gain", "not tried", "a mixture that is expected to take more than {} of the time of its own library's "
    "baseline, or all of a library whose mixtures took more than that of the best baseline's", number=0.95,
)
LITTLE_ROOM = Rule(
    "little_room", "not tried", "another mixture of a family whose error within the budget is above {} of it",
    "Chosen: mixtures at 0.67 and 0.79 of it were 1.54 and 1.62 times as fast as ONNX Runtime (an encoder of 24 "
    "layers, Xeon held to AVX2), at 0.66 and 0.92 1.33 and 1.47 times (ViT-B/16).", 0.8,
)
SLOW_LEVEL = Rule(
    "slow_level", "not tried", "a budget level that is predicted to take {} times as long as the fastest within the "
    "budget", "Seen: on a BERT of 4 layers one took 15.5 ms where 18.9 were predicted.", 1.3,
)

# The answer.
UNPUBLISHED = Rule(
    "unpublished", "left out", "an answer before the final comparison that does not take less than {} of the time of "
    "the one before it", "Chosen: writing it takes as long as copying the model.", 0.98,
)
OUT_OF_RACE = Rule(
    "out_of_race", "left out", "a library or placement that takes {} times as long as the best baseline is not in "
    "the final comparison", _KEY, key="policy.race_near",
)
OUT_OF_CONTENDED_RACE = Rule(
    "out_of_contended_race", "left out", "the same at {} times where other programs disturbed either's time",
    number=1.5,
)
LOST_RACE = Rule(
    "lost_race", "given up", "a contestant that is unlikely to be faster than the best by more than a share of {}",
    _KEY, key="policy.race_worth",
)
# fmt: on

RULES: Mapping[str, Rule] = {rule.name: rule for rule in tuple(globals().values()) if isinstance(rule, Rule)}
"""All rules, by name."""
