"""Sensitivity analysis: each operator's contribution to the error of the outputs in each lower arithmetic.

A placement's error is about the root of the sum of its operators' sensitivities. One operator at a time computes on
rounded numbers (``precision/transforms/switches.py``). Where time does not suffice for all, sets of the others do
(``precision/transforms/bisection.py``).
"""

from __future__ import annotations

import math
import random
import statistics
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from collage_evo.graph.ir.graph import Graph, NodeSet, node_set
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.graph.ir.weights import is_heavy
from collage_evo.graph.reference.distance import counted_distances, holds_labels
from collage_evo.multimap import multimap
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.transforms.bisection import LEAST, attributed, bisected
from collage_evo.precision.transforms.catalogue import TRANSFORMS, transform_of
from collage_evo.precision.transforms.switches import Switches, transforms_at
from collage_evo.precision.transforms.transform import Transform

FIRST = 4
"""Operators of each arithmetic, heavy and other ones, that are tried first. Chosen."""
REFINEMENTS = (5, 4, 3, 2)
"""Of the kinds of nodes whose errors are alike (``graph/ir/kinds.py``), the finest first. Chosen: four tell an
encoder's products for queries, keys and values apart, whose errors differ up to ten thousand times; at five hardly an
operator but those of its first and last layers is the only one of its kind. From layer to layer the error of one kind
changes little (docs/studies.md#operators-that-were-not-tried)."""
UNTRIED = 2.0
"""Factor on the estimated squared error of an operator of whose kind none was tried, so that a mixture prefers those
that were (docs/studies.md#operators-that-were-not-tried)."""
SETS_SHARE = 0.25
"""Share of the time for sets of operators that were not tried, while a mixture at the budget would contain such, or
exclude a part of a set (docs/studies.md#operators-that-were-not-tried)."""
HEAVY_FIRST = 16
"""Trials of a heavy model for which the first switches are written. Chosen."""
MORE_SHARE = 0.5
"""Share of the time after which no further sample is tried."""


class Sensitivities(dict[Arithmetic, tuple[float, ...]]):
    """By arithmetic, for each node the squared relative error at the model's outputs that it adds by itself, as in
    ``accuracy/judge.py`` without a metric: of the 2-norm, and for label outputs the share that differs.

    ``estimated``: the number of them, over all arithmetics, that were not measured.
    """

    estimated: int = 0


@dataclass(frozen=True)
class _Trial:
    """One operator in one arithmetic, all others in float32."""

    node: int
    transform: Transform
    heavy: bool
    kinds: tuple[int, ...]
    """Of the node, for each of ``REFINEMENTS``."""

    @property
    def group(self) -> tuple[Transform, bool]:
        """Key of the trials of one arithmetic, of heavy operators or of others."""
        return self.transform, self.heavy

    @property
    def in_sets(self) -> bool:
        """Whether it is also tried together with others: a heavy operator in int8, of which mixtures consist."""
        return self.heavy and self.transform.arithmetic is Arithmetic.INT8


_Sets = Mapping[tuple[_Trial, ...], float]
"""Trials that were measured together, and their squared error."""


def error_sensitivities(
    graph: Graph,
    ranges: Ranges,
    feeds: Sequence[Mapping[str, Any]],
    threads: int = 1,
    seconds: float = math.inf,
    wanted: Mapping[Arithmetic, NodeSet] | None = None,
    expected_ms: Sequence[float] = (),
    clock: Callable[[], float] = time.monotonic,
    budget: float = 0.0,
) -> Sensitivities:
    """The sensitivity of each node in each lower arithmetic; 0 where the node does not run in it.

    The arithmetic's transform defines the trial. float16 is assumed to err like bfloat16 with eight times finer
    rounding, and so is TF32, in which only heavy operators compute.

    Args:
        graph: the normalised model.
        ranges: of its activations; without them nothing is in int8.
        feeds: samples, by input name. All operators are tried on the first, heavy ones also on the others within
            ``MORE_SHARE`` of the time, unless the model is heavy: an operator's error differs several times between
            samples.
        threads: of the reference.
        seconds: no further trial begins after this time, from when the model is loaded. The remaining operators get
            what the measured ones of their kind before and after them say; where there is none, ``UNTRIED`` times
            that of the finest coarser kind that has some, else the median of all of their arithmetic; without any,
            its roundoff squared. Those that were tried as a set share its error in proportion to that.
        wanted: nodes by arithmetic, if not all: the others have no sensitivity.
        expected_ms: of each node: those that take long are tried first. By default all take the same time.
        clock: seconds.
        budget: the relative error of a mixture, whose heavy operators in int8 are tried in sets if there is no time
            to try each. 0.0: no sets.

    Raises:
        InputError: the model does not run on ``feeds``.
    """
    nodes_of = dict.fromkeys(Arithmetic, graph.all_nodes) if wanted is None else dict(wanted)
    for kind, (like, nodes) in _alike(graph).items():
        nodes_of[like] = nodes_of.get(like, 0) | nodes_of.get(kind, 0) & nodes
    losing = {one: one.losing(graph, nodes_of.get(one.arithmetic, 0), ranges) for one in TRANSFORMS}
    expected_ms = expected_ms or [1.0] * len(graph.nodes)
    trials = _in_order(_trials(graph, losing), expected_ms)
    meter = _Meter(graph, ranges, feeds, threads, clock, budget, expected_ms)
    return _complete(graph, trials, *meter.measure(trials, seconds))


@dataclass
class _Meter:
    """Measures the squared errors of trials; arguments as of :func:`error_sensitivities`."""

    graph: Graph
    ranges: Ranges
    feeds: Sequence[Mapping[str, Any]]
    threads: int
    clock: Callable[[], float]
    budget: float
    expected_ms: Sequence[float]
    begin: float = 0.0
    """Time of the clock, put off by what loading took: a model takes longer to load than a small one is tried for."""
    load_s: float = 0.0
    """Seconds in which the switches of a trial were written and loaded, the last time."""
    loaded: frozenset[_Trial] = frozenset()
    """Trials that have switches now."""
    labels: Sequence[bool] = ()
    """Whether each output holds labels."""
    switches: Switches = field(init=False)
    sample: Mapping[str, Any] = field(init=False)
    exact: Sequence[Any] = field(init=False)
    """The outputs on ``sample`` with all switches off."""

    def measure(self, trials: Sequence[_Trial], seconds: float) -> tuple[Mapping[_Trial, float], _Sets]:
        """Squared errors of as many trials as ``seconds`` allow by themselves, and of sets.

        In this order: single trials on the first sample, sets of those that are left, single ones in the time that
        sets do not need, and those of heavy operators on the other samples.

        The switches of a heavy model hold rounded weights and are written in seconds each, so only those that there
        is time to try: a few first, which tell how long a trial takes. Sets need the switches of all that were not
        tried, so there are none where these would take longer to write than sets may take.
        """
        errors: dict[_Trial, float] = {}
        sets: _Sets = {}
        if not self.feeds or not trials:
            return errors, sets
        is_large, singles_s = is_heavy(self.graph.model), (1.0 - SETS_SHARE) * seconds if self.budget else seconds
        self._load(trials[:HEAVY_FIRST] if is_large else trials)
        outputs = [self.switches.run(sample) for sample in self.feeds[:2]]
        self.labels = [holds_labels(output) for output in zip(*outputs, strict=True)]
        self.begin = self.clock()
        self._try(trials, errors, singles_s)
        untried = [trial for trial in trials if trial.in_sets and trial not in errors]
        if not self.loaded.issuperset(untried) and self.load_s * len(untried) < seconds - singles_s:
            self._load(untried)
        if self.loaded.issuperset(untried):
            sets = self._sets(trials, errors, seconds)
        self._try(trials, errors, seconds, loads_count=True)
        rounds, heavy = [errors], [trial for trial in trials if trial.heavy]
        for sample in self.feeds[1:] if len(errors) == len(trials) and not is_large else ():
            if self._spent_s() > MORE_SHARE * seconds:
                break
            self.sample, self.exact = sample, self.switches.run(sample)
            self._try(heavy, errors := {}, MORE_SHARE * seconds)
            if len(errors) == len(heavy):  # with only some, operators would differ in their samples
                rounds.append(errors)
        return {trial: statistics.fmean(one[trial] for one in rounds if trial in one) for trial in rounds[0]}, sets

    def _try(
        self, trials: Sequence[_Trial], errors: dict[_Trial, float], until_s: float, loads_count: bool = False
    ) -> None:
        """Add to ``errors`` those of further ``trials``, each by itself, that begin before ``until_s`` is spent.

        ``loads_count``: whether the seconds that further switches take to load are part of it.
        """
        while untried := [trial for trial in trials if trial not in errors]:
            batch = [trial for trial in untried if trial in self.loaded]
            if not batch:
                spent_s, load_s = self._spent_s(), self.load_s if loads_count else 0.0
                each_s = spent_s / len(errors) + load_s if errors else math.inf
                fit = min((until_s - spent_s) / each_s, len(untried))
                if fit < 1.0:
                    return
                self._load(batch := untried[: int(fit)])
                until_s -= load_s * len(batch)
            for trial in batch:
                if self._spent_s() > until_s:
                    return
                errors[trial] = self._error2([trial])

    def _sets(self, trials: Sequence[_Trial], errors: Mapping[_Trial, float], until_s: float) -> _Sets:
        """Sets of trials that are not in ``errors``, while any helps and begins before ``until_s`` is spent."""
        estimates = _estimated([trial for trial in trials if trial.in_sets], errors)
        expected_ms = {trial: self.expected_ms[trial.node] for trial in estimates}
        return bisected(estimates, errors, expected_ms, self.budget, self._error2, lambda: self._spent_s() > until_s)

    def _error2(self, trials: Sequence[_Trial]) -> float:
        """The squared error of these trials at once."""
        values = self.switches.run(self.sample, [(trial.node, trial.transform) for trial in trials])
        # Beyond this the outputs have nothing in common.
        return min(_error(values, self.exact, self.labels), 1.0) ** 2

    def _spent_s(self) -> float:
        return self.clock() - self.begin

    def _load(self, trials: Sequence[_Trial]) -> None:
        """Load the model with switches for ``trials``, and run it without."""
        began = self.clock()
        if self.loaded:
            del self.switches  # it holds another copy of the model
        tried = {one: node_set(trial.node for trial in trials if trial.transform is one) for one in TRANSFORMS}
        self.switches, self.loaded = Switches(self.graph, tried, self.ranges, self.threads), frozenset(trials)
        self.load_s = (self.clock() - began) / len(trials)
        self.sample, self.exact = self.feeds[0], self.switches.run(self.feeds[0])
        self.begin += self.clock() - began


def _error(values: Sequence[Any], exact: Sequence[Any], labels: Sequence[bool]) -> float:
    """The largest error of an output; ``labels`` marks label outputs.

    Labels flip where the noise before them exceeds their margin: as long as few do, their share grows with the
    noise's 2-norm, so that its squares add up as well. A share of zero means that none of few samples' labels
    flipped, not that none will.
    """
    outputs = zip(values, exact, labels, strict=True)
    return max((one.error.relative for output in outputs for one in counted_distances(*output)), default=0.0)


def _trials(graph: Graph, losing: Mapping[Transform, NodeSet]) -> list[_Trial]:
    kinds = list(zip(*(kinds_of(graph, refinements) for refinements in REFINEMENTS), strict=True))
    return [
        _Trial(node.index, transform, node.op_type in HEAVY, kinds[node.index])
        for node in graph.nodes
        for transform in transforms_at(losing, node.index)
    ]


def _in_order(trials: Sequence[_Trial], expected_ms: Sequence[float]) -> list[_Trial]:
    """Some of each group first, then the heavy ones; in a group those first that take the most time, of which the
    next one of a kind counts less than the one before: a neighbour of its kind tells its error too.

    Of the heavy ones those in int8 come first: their errors differ more from operator to operator than those in 16
    bits. Of 31 untried products of a Swin-T, two add 0.7 % each, where the median is 0.05 %.
    """
    ranks: dict[_Trial, int] = {}
    for group in multimap((trial.group, trial) for trial in random.Random(0).sample(trials, len(trials))).values():
        worth: dict[_Trial, float] = {}
        for one in multimap((trial.kinds[0], trial) for trial in group).values():
            alike = sorted(one, key=attrgetter("node"))
            in_turn = enumerate((alike[copy_] for copy_ in _apart(len(alike))), 1)
            worth |= {trial: expected_ms[trial.node] / turn for turn, trial in in_turn}
        ranks.update({trial: rank for rank, trial in enumerate(sorted(worth, key=worth.__getitem__, reverse=True))})

    def place(trial: _Trial) -> tuple[int, bool, int, int]:
        rank = ranks[trial]
        return min(rank, FIRST), not trial.heavy, trial.transform.arithmetic.weight_bytes, rank

    return sorted(ranks, key=place)


def _apart(count: int) -> list[int]:
    """The places of a row of ``count``, each far from those before it: the middle, the ends, the middles of gaps."""
    order = list(dict.fromkeys((count // 2, count - 1, 0)))
    known = sorted(order)
    while len(order) < count:
        left, right = max(pairwise(known), key=lambda gap: gap[1] - gap[0])
        order.append((left + right) // 2)
        insort(known, order[-1])
    return order


def _complete(
    graph: Graph, trials: Sequence[_Trial], errors: Mapping[_Trial, float], sets: _Sets = MappingProxyType({})
) -> Sensitivities:
    """All sensitivities, with estimates of the unmeasured ones."""
    sensitivities, found = Sensitivities(), attributed(_estimated(trials, errors), errors, sets)
    sensitivities.estimated = len(trials) - len(errors)
    by_node = {(trial.transform, trial.node): error2 for trial, error2 in found.items()}
    for one in TRANSFORMS:
        sensitivities[one.arithmetic] = tuple(by_node.get((one, node.index), 0.0) for node in graph.nodes)
    for arithmetic, (like, nodes) in _alike(graph).items():
        finer = (arithmetic.roundoff / like.roundoff) ** 2
        shares = enumerate(sensitivities[like])
        sensitivities[arithmetic] = tuple(share * finer * (nodes >> node & 1) for node, share in shares)
    return sensitivities


def _estimated(trials: Sequence[_Trial], errors: Mapping[_Trial, float]) -> dict[_Trial, float]:
    """The squared error of each trial by itself: measured, or by those of its kind."""
    in_order = sorted(errors, key=attrgetter("node"))
    of_kind = multimap(((one.transform, *kind), one) for one in in_order for kind in enumerate(one.kinds))
    of_group = multimap((one.group, errors[one]) for one in in_order)

    def estimate(trial: _Trial) -> float:
        for level, kind in enumerate(trial.kinds):
            if alike := of_kind.get((trial.transform, level, kind)):
                logs = [math.log(max(errors[one], LEAST)) for one in alike]
                its = math.exp(np.interp(trial.node, [one.node for one in alike], logs))
                return UNTRIED * its if level else its
        group = of_group.get(trial.group)
        return UNTRIED * statistics.median(group) if group else trial.transform.arithmetic.roundoff**2

    return {trial: errors[trial] if trial in errors else estimate(trial) for trial in trials}


def _alike(graph: Graph) -> dict[Arithmetic, tuple[Arithmetic, NodeSet]]:
    """Arithmetics that only libraries' settings enable: each with a written one of like error, and the nodes that
    compute in it."""
    heavy = node_set(node.index for node in graph.nodes if node.op_type in HEAVY)
    alike = {Arithmetic.FLOAT16: graph.all_nodes, Arithmetic.TF32: heavy}
    return {kind: (Arithmetic.BFLOAT16, nodes) for kind, nodes in alike.items() if transform_of(kind) is None}
