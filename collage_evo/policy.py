"""The policy of a run: thresholds, shares and efforts that decide which placement wins, or how long a run takes.

A person who compares methods can set each, and a sweep can vary it. Each was measured, or comparisons vary it; other
thresholds are constants of the modules that use them, as are facts about a format, a library or a machine. The
hyperparameters of the genetic search are in ``GaSettings``, and times and counts that most people set have keys of
their own in the configuration.

None of these values changes what a piece is compiled to or how a match is timed alone: what runs share (compiled
pieces, the database of costs) means the same under every policy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from collage_evo.bounded import bounded, check_bounds


def _decides(default: float, low: float, high: float, what: str, basis: str = "Chosen") -> Any:
    """A field whose description says ``what`` it decides, and the ``basis`` of its default."""
    return bounded(default, low, high, f"{what}. {basis}.")


@dataclass(frozen=True)
class Policy:
    """Each description says what the value decides and what its default was measured by, or that it was chosen.

    Raises:
        ConfigError: a value is not in its range.
    """

    # fmt: off
    # Which libraries and precisions take part, by what each takes alone.
    single_give_up: float = _decides(
        3.0, 1.01, 1000, "A single library this many times as slow as the best before it is timed no further, its "
        "kernels are not timed one by one, and with its defaults it takes no part in the final comparison",
        "Seen: programs beside it made a library up to twice as slow")
    threads_short_ms: float = _decides(
        1.0, 0, 1e6, "A model that the best baseline runs in this many ms on all threads is tried on fewer; 0: "
        "all threads are used", "Seen: one network of eleven, of 0.3 ms, took half as long on one of two threads")
    threads_pay: float = _decides(
        1.03, 1, 1000, "As many threads are used as make the best library this many times as fast as on fewer",
        "Seen: bfloat16 alone 1.07 times as fast on two threads as on one, answers of searches 1.15 and 1.20 times")
    precision_slower: float = _decides(
        1.5, 1, 1000, "A precision is not tried on parts where a single library takes this many times as long as in "
        "float32", "Seen: bfloat16 in 3.4 and 2.2 ms within minutes, so either time may be a third off")
    precision_coarse: float = _decides(
        0.5, 0, 1000, "A precision with an error of more than this share of the budget is tried operator by "
        "operator together with float32, not only for whole pieces",
        "By sum: squared errors add up, so that below it float32 in its place leaves others a third more at most")
    precision_spent: float = _decides(
        0.9, 0, 1000, "A precision with an error of more than this share of the budget is not tried for whole "
        "pieces",
        "By sum: squared errors add up, so that up to it operators in int8 may err by 0.44 of the budget")

    # What costs are measured, and what is expected before.
    cuts: int = _decides(32, 0, 10_000, "Random cuts of the model that are measured to tell what borders cost")
    border_ms: float = _decides(
        0.015, 0, 100, "What one side of a border is expected to cost before cuts are measured, ms",
        "Measured: networks on a Xeon, 1 and 2 threads, 0 to 0.07 ms")
    border_ms_per_mb: float = _decides(
        0.1, 0, 1000, "The same for what passes it, ms for 10^6 bytes",
        "Measured: networks on a Xeon, 1 and 2 threads, 0.03 to 0.17")

    # Where the search begins.
    cover_states: int = _decides(
        4000, 1000, 10**8, "States that the dynamic program examines for the cheapest covers: of the seeds, at "
        "each price of an error, and in each generation",
        "Measured: a network of 677 operators, three sets of costs; 1,500, 4,000, 20,000 and 220,000 found the same "
        "covers, in 3, 4, 8 and 13 s. On a NASNet 220,000 found one 0.1 % cheaper than 20,000")

    # What the search proposes.
    random_within: float = _decides(
        5.0, 1, 1000, "What is believed to take this many times as long as the fastest child is not picked at random")

    # Who races for being the answer, and when that is decided.
    race_level: float = _decides(
        0.98, 0.5, 0.999, "Confidence at which the final comparison is decided, and of the intervals of its ratios",
        "Measured: of equals fewer than one in a hundred wins (2d0817f2:benchmarks/stopping.py, "
        "2d0817f2:benchmarks/aa.py)")
    race_worth: float = _decides(
        0.005, 0, 1, "A candidate leaves the final comparison if it is unlikely to be faster than the best by more "
        "than this share")
    race_near: float = _decides(
        1.15, 1, 1000, "Single libraries and placements take part that take at most this many times as long as the "
        "best baseline")
    race_share_ms: float = _decides(
        300.0, 0, 1e6, "What each has of a round, ms, or as long as all took to load where that is longer")
    # fmt: on

    def __post_init__(self) -> None:
        check_bounds(self, "policy")

    @property
    def unusual(self) -> dict[str, Any]:
        """The values that are not the default ones, by name."""
        values = ((one.name, getattr(self, one.name), one.default) for one in fields(self))
        return {name: value for name, value, usual in values if value != usual}

    @property
    def text(self) -> str:
        """The same as text, empty where there are none: what records that depend on the policy are of."""
        return ", ".join(f"{name}={value}" for name, value in self.unusual.items())


DEFAULT_POLICY = Policy()
