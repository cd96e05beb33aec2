"""The policy of a run: thresholds, shares and efforts that decide which placement wins, or how long a run takes.

A person who compares methods can set each, and a sweep can vary it. What is a fact about a format, a library or a
machine is none of these, and stays beside the code that knows it. The hyperparameters of the genetic search are in
``GaSettings``, and times and counts that most people set have keys of their own in the configuration.

None of these values changes what a piece is compiled to or how a match is timed alone: what runs share (compiled
pieces, the database of costs) means the same under every policy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from collage_evo.bounded import bounded, check_bounds
from collage_evo.errors import ConfigError


def _decides(default: float, low: float, high: float, what: str, basis: str = "Chosen") -> Any:
    """A field whose description says ``what`` it decides, and the ``basis`` of its default."""
    return bounded(default, low, high, f"{what}. {basis}.")


@dataclass(frozen=True)
class Policy:
    """Each description says what the value decides and what its default was measured by, or that it was chosen.

    Raises:
        ConfigError: a value is not in its range, or two do not go together.
    """

    # fmt: off
    # Which libraries and precisions take part, by what each takes alone.
    single_give_up: float = _decides(
        3.0, 1.01, 1000, "A single library this many times as slow as the best before it is timed no further, "
        "and with its defaults takes no part in the final comparison",
        "Seen: programs beside it made a library up to twice as slow")
    single_hopeless: float = _decides(
        10.0, 1.01, 1000, "A single library that is this many times as slow as the best has no other variant tried")
    single_behind: float = _decides(
        1.5, 1, 1000, "A library that is this many times as slow alone as the best is profiled after the others' "
        "rewritten models; no backend that stands on others uses it, and a run like another one (--like) does not "
        "measure it again",
        "Chosen: it would have to win as much only to draw level")
    threads_short_ms: float = _decides(
        1.0, 0, 1e6, "A model that the best single library runs in this many ms on all threads is tried on fewer; 0: "
        "all threads are used", "Seen: one network of eleven, of 0.3 ms, took half as long on one of two threads")
    threads_pay: float = _decides(
        1.03, 1, 1000, "As many threads are used as make the best library this many times as fast as on fewer",
        "Seen: bfloat16 alone 1.07 times as fast on two threads as on one, answers of searches 1.15 and 1.20 times")
    precision_slower: float = _decides(
        1.5, 1, 1000, "A precision is not tried on parts where a single library takes this many times as long as in "
        "float32", "Seen: bfloat16 in 3.4 and 2.2 ms within minutes, so either time may be a third off")
    precision_coarse: float = _decides(
        0.5, 0, 1000, "A precision whose error alone is more than this share of the budget is tried operator by "
        "operator beside float32, not for whole pieces",
        "By sum: squared errors add up, so that below it float32 in its place leaves others a third more at most")

    # What costs are measured, and what is expected before.
    profile_share: float = _decides(0.55, 0, 1, "Share of costs.seconds after which no more is profiled")
    standalone_share: float = _decides(
        0.75, 0, 1, "Share of costs.seconds after which no kernel is timed alone; the rest is for cuts of the model")
    kernels_far: float = _decides(
        3.0, 1, 1000, "Kernels of an engine that takes more than this many times as long as the best for the whole "
        "model are not timed alone")
    cuts: int = _decides(32, 0, 10_000, "Random cuts of the model that are measured to tell what borders cost")
    cut_near: float = _decides(
        2.0, 1, 1000, "Engines take part in these cuts that take at most this many times as long as the best")
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
    diverse_states: int = _decides(10_000, 1000, 10**8, "The same for each cover that is to differ from the others")
    diverse_penalty: float = _decides(
        0.15, 0, 10, "By what share a match is dearer for each earlier cover it is in, where covers are to differ")
    near_seeds: int = _decides(4, 0, 1000, "Seeds that are the next cheapest covers, where latency alone counts")
    diverse_seeds: int = _decides(4, 0, 1000, "Seeds that are good covers unlike the others")
    greedy_seeds: int = _decides(6, 0, 1000, "Seeds that give each operator to the first library that takes it")
    seed_far: float = _decides(
        2.0, 1, 1000, "Seeds of an engine alone this many times as slow as the best come after those of all others")

    # What the search proposes, and what it believes.
    other_bounds: float = _decides(
        0.25, 0, 1, "Share of places in a batch that look for the fastest at another error than the budget's")
    price_spread: float = _decides(
        0.5, 0, 5, "How much the price of errors varies at which covers are proposed, deviation of its logarithm")
    random_within: float = _decides(
        5.0, 1, 1000, "What is believed to take this many times as long as the fastest child is not picked at random")
    latency_noise: float = _decides(
        0.01, 1e-6, 1, "Noise of one measured latency that the learned model begins with, a share",
        "Chosen; each search fits its own from there")
    error_noise: float = _decides(
        0.05, 1e-6, 1, "The same for what parts do to each other's errors",
        "Chosen; each search fits its own from there")
    learned_rows: int = _decides(
        500, 1, 100_000, "Placements that the learned models are fitted to; work grows with the cube of their number")

    # How long a placement is timed, and on how many samples it is judged.
    first_pair: float = _decides(
        1.3, 1, 1000, "What the first pair of bursts shows to be this many times as slow as the best has no second")
    standard_errors: float = _decides(2.0, 0, 100, "A median is taken to be known within so many standard errors")
    least_pairs: int = _decides(3, 2, 1000, "Pairs of bursts that tell a standard error")
    near_pairs: int = _decides(6, 2, 1000, "Pairs after which what is known closely enough is timed no further")
    near_error: float = _decides(
        0.01, 0, 1, "What counts as closely enough, a share",
        "Chosen; benchmarks/repeatability.py shows how far measurements of one placement spread")
    near_best: float = _decides(
        1.1, 1, 1000, "A placement that takes more than this many times as long as the best is not judged on all "
        "samples, and where there is no anchor it is timed no further once its first runs all do")
    first_samples: int = _decides(2, 1, 10_000, "Samples that a placement in a lower precision is judged on before")

    # Who races for being the answer, and when that is decided.
    race_level: float = _decides(
        0.98, 0.5, 0.999, "Confidence at which the final comparison is decided, and of the intervals of its ratios",
        "Measured: of equals fewer than one in a hundred wins (benchmarks/stopping.py, benchmarks/aa.py)")
    race_worth: float = _decides(
        0.005, 0, 1, "Who is not likely to be faster by more than this share leaves the final comparison")
    race_missed: float = _decides(
        0.02, 1e-6, 0.49, "Chance, each time one asks, that somebody has to leave who is faster by that much")
    race_near: float = _decides(
        1.15, 1, 1000, "Single libraries take part that take at most this many times as long as the best")
    race_near_contended: float = _decides(1.5, 1, 1000, "The same where others disturbed either's time")
    race_share_ms: float = _decides(
        300.0, 0, 1e6, "What each has of a round, ms, or as long as all took to load where that is longer")
    candidate_margin: float = _decides(
        0.95, 0, 1, "One placement of those that race at least keeps to this share of the budget of error")
    candidate_safer: float = _decides(
        0.5, 0, 1, "Where a metric finds some equally wrong, each is predicted to err this share of one before it")
    # fmt: on

    def __post_init__(self) -> None:
        check_bounds(self, "policy")
        for least, most in (("profile_share", "standalone_share"), ("least_pairs", "near_pairs")):
            small, large = getattr(self, least), getattr(self, most)
            if small > large:
                raise ConfigError(f"policy.{least} is {small}, more than policy.{most} ({large}); lower it")

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
