"""What a search gains from the answer of an earlier run on a related network, remembered by kinds of nodes.

    python benchmarks/answer_memory.py answer_memory.json [--seeds 16] [--placements 20] [--noise 0.02]

A seed draws costs, errors and interactions for each operator with its shapes, alike for both networks of a pair, and
the same wrong beliefs about them. The first run's answer gives each kind of node (the colours of Weisfeiler and Leman
after 2 steps, else 1, else 0) its most frequent engine and pieces. The second run measures the placement of these
kinds first, and the same with less of its lower precisions where its predicted error exceeds 0.8 of the budget; or
the usual seeds; or these with whole-model engines last. Prints ratios to the usual seeds, with standard errors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
import repository  # noqa: F401

from collage_evo.graph.ir.graph import Graph, members
from collage_evo.graph.ir.kinds import _own
from collage_evo.patterns.match import Match, Placement
from collage_evo.placement.cost_model import Border, CostModel, Engine
from collage_evo.placement.genome import Genome
from collage_evo.placement.outcome import Objective, Outcome
from collage_evo.placement.space import SearchSpace
from collage_evo.policy import Policy
from collage_evo.search.cover.dynamic_program import cheapest_covers
from collage_evo.search.encoding import decode, encode, place
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.greedy import engine_placement
from collage_evo.search.evolution.knapsack import greedy_levels
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import likeliest, make_seeds
from collage_evo.search.evolution.settings import Budget, GaSettings
from collage_evo.search.evolution.state import new_state
from tests.support.numerics import in_bfloat16, in_int8
from tests.support.precise import BUDGET, ENGINES, SPEED, STEPS, STEPS_OF
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import encoder_like, inception_like, make_graph

Seed = tuple[str, Genome]
PLAIN: tuple[Engine, ...] = tuple((f"b{k}", "default") for k in range(4))
WRITTEN = {"bf16": in_bfloat16, "int8": in_int8}
DEPTHS = (2, 1, 0)
MARKS = (1, 3, 6, 10, 20)


def residual(blocks: int, other: bool) -> Graph:
    """Bottleneck blocks with a skip; ``other``: those after the second have other sizes."""
    preds, operators, sizes, last = [[], [0], [1]], ["Stem", "Relu", "Pool"], [4, 4, 4], 2
    for block in range(blocks):
        width = 7 if other and block > 1 else 4
        added = [(f"Conv{k // 2}" if k % 2 == 0 else "Relu", width - k // 2 % 2) for k in range(6)]
        skip = last
        if block % 2 == 0:
            preds, skip = [*preds, [last]], len(preds)
            added = [("Proj", width), *added]
        for _ in range(6):
            preds, last = [*preds, [last]], len(preds)
        preds, last = [*preds, [last, skip], [len(preds)]], len(preds) + 1
        added += [("Add", width), ("Relu", width)]
        operators += [operator for operator, _ in added]
        sizes += [size for _, size in added]
    return make_graph([*preds, [last]], [*sizes, 1], [*operators, "Head"])


PAIRS: dict[str, tuple[Callable[[], Graph], Callable[[], Graph], bool, bool]] = {
    "other weights, budget": (lambda: inception_like(3), lambda: inception_like(3), True, False),
    "3 layers, then 6": (lambda: encoder_like(3), lambda: encoder_like(6), False, False),
    "residual, half other, budget": (lambda: residual(2, False), lambda: residual(4, True), True, False),
    "3 layers, then 6, budget": (lambda: encoder_like(3), lambda: encoder_like(6), True, True),
}
"""Both networks, whether engines differ in errors, and whether errors grow with the number of operators."""


@dataclass(frozen=True)
class Run:
    """``known``: share of nodes of known kind. Of what is remembered: true ms, error. By way: true ms of the best
    within the budget after each placement, infinite before there is one."""

    pair: str
    seed: int
    known: float
    remembered_ms: float
    error: float
    found_ms: dict[str, list[float]]


def draw(low: float, high: float, *key: object) -> float:
    """A uniform draw that depends on the key only."""
    digest = hashlib.blake2b("|".join(map(str, key)).encode(), digest_size=8).digest()
    return low + (high - low) * int.from_bytes(digest) / 2**64


def factor(deviation: float, *key: object) -> float:
    """A lognormal draw that depends on the key only."""
    return math.exp(deviation * NormalDist().inv_cdf(draw(1e-9, 1 - 1e-9, *key)))


def labels(graph: Graph, depth: int) -> list[str]:
    """For each node its kind, equal in all processes and graphs."""

    def digest(label: object) -> str:
        return hashlib.sha256(repr(label).encode()).hexdigest()[:16]

    found = [digest(_own(graph, node)) for node in graph.nodes]
    for _ in range(depth):
        around = [
            (
                tuple(found[graph.producer[name]] if name in graph.producer else "" for name in node.inputs),
                tuple(tuple(sorted(found[i] for i in graph.consumers.get(name, ()))) for name in node.outputs),
            )
            for node in graph.nodes
        ]
        found = [digest((own, *sides)) for own, sides in zip(found, around, strict=True)]
    return found


def target_of(
    graph: Graph, seed: int, run: str, budget: bool, grows: bool, noise: float
) -> tuple[SimulatedEvaluator, SearchSpace]:
    """The target of one of both runs, and its space as the search believes it."""
    kinds, places = labels(graph, 0), labels(graph, 1)
    engines = ENGINES if budget else PLAIN
    families = {engine: (engine[0], "default") for engine in engines if engine[1] != "default"}

    def node_ms(node: int, engine: Engine) -> float:
        kind = kinds[node]
        base = draw(0.5, 1.5, seed, kind)
        if not budget:
            return base * draw(0.5, 1.5, seed, kind, engine)
        base *= draw(0.7, 1.4, seed, kind, engine[0])
        return base / draw(*SPEED[engine[1]], seed, kind, engine, "speed")

    sets = dict.fromkeys(1 << node for node in range(len(graph.nodes)))
    for i in range(len(graph.nodes)):
        for j in members(graph.succ[i]):
            sets |= dict.fromkeys([1 << i | 1 << j, *(1 << i | 1 << j | 1 << k for k in members(graph.succ[j]))])
    matches, costs, believed = [], [], []
    for nodes in filter(graph.is_convex, sets):
        alike, single = tuple(kinds[i] for i in members(nodes)), nodes.bit_count() == 1
        for engine in engines:
            if (engine != engines[0] or not single) and draw(0, 1, seed, alike, engine) > (0.9 if single else 0.25):
                continue
            ms = sum(node_ms(i, engine) for i in members(nodes)) * draw(0.98, 1.02, seed, run, nodes, engine)
            ms *= 1 if single else draw(0.7, 1, seed, "gain", alike, engine)
            edits = WRITTEN[engine[1]](nodes) if engine in families else ()
            matches.append(Match(nodes, *engine, edits, base="default" if edits else ""))
            costs.append(ms)
            believed.append(ms * factor(0.07, seed, engine) * factor(0.12, seed, "match", alike, engine))
    width = 0.3 if budget else 0.1
    borders = {one: Border(draw(0, width, seed, one, 1), draw(0, width, seed, one, 2)) for one in engines}
    wrong = {
        one: Border(border.fixed_ms * factor(0.5, seed, 1, one), border.ms_per_mb * factor(0.5, seed, 2, one))
        for one, border in borders.items()
    }
    step = BUDGET**2 / STEPS * (1.0 if grows else 23 / len(graph.nodes))
    lossy = [(i, one) for i in range(len(graph.nodes)) for one in engines if one[1] in STEPS_OF]
    errors = {
        (i, one): step * STEPS_OF[one[1]] * factor(1, seed, "error", places[i], one) * factor(0.3, run, seed, i, one)
        for i, one in lossy
    }
    told = {key: error * factor(0.4, seed, "told", key[1]) * factor(0.4, seed, run, "told", key)
            for key, error in errors.items()}  # fmt: skip
    added = tuple(sum(told.get((i, match.engine), 0.0) for i in members(match.nodes)) for match in matches)
    space = SearchSpace(
        graph, tuple(matches), CostModel(tuple(costs), borders, families=families),
        terms={Objective.ERROR: added} if budget else {}, policy=Policy(cover_states=1000),
    )  # fmt: skip
    effects = NonAdditive(layout=0.25, region=0.03, contention=0.01)
    numbers = [int(kind, 16) for kind in kinds]
    target = SimulatedEvaluator(space, effects, noise, seed, errors, kinds=numbers)
    return target, space.costing(CostModel(tuple(believed), wrong, families=families))


class Trace:
    """Measures on a target, and notes the true ms of the best placement within the bound so far."""

    def __init__(self, target: SimulatedEvaluator, bound: float) -> None:
        self._target, self._bound, self._best = target, bound, (math.inf, math.inf)
        self.found_ms: list[float] = []

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
        asked = tuple(placements)
        outcomes = self._target.evaluate(asked)
        for placement, outcome in zip(asked, outcomes, strict=True):
            if outcome.error is not None and outcome.error <= self._bound:
                measured_ms = outcome.latency_ms or math.inf
                self._best = min(self._best, (measured_ms, self._target.latency_ms(placement)))
            self.found_ms.append(self._best[1])
        return outcomes


class Memory:
    """The answer of a run by kinds of nodes and of edges."""

    def __init__(self, space: SearchSpace, answer: Placement) -> None:
        self._counts: dict[object, Counter[tuple[object, ...]]] = {}
        owner: dict[int, int] = {}
        named = {depth: labels(space.graph, depth) for depth in DEPTHS}
        for position, region in enumerate(answer.regions):
            for match in (space.matches[index] for index in region.matches):
                for node in members(match.nodes):
                    owner[node] = position
                    for depth, own in named.items():
                        self._count((depth, own[node]), match.engine, tuple(own[i] for i in members(match.nodes)))
        for i, j in space.edges:
            apart = owner[i] != owner[j] and answer.regions[owner[i]].family == answer.regions[owner[j]].family
            for depth, own in named.items():
                self._count((depth, own[i], own[j]), not apart)

    def _count(self, key: object, *value: object) -> None:
        self._counts.setdefault(key, Counter())[value] += 1

    def genome(self, space: SearchSpace) -> tuple[Genome, float]:
        """The genome of these kinds in ``space``, and the share of nodes of known kind; the others are as in the
        cheapest cover."""
        named = {depth: labels(space.graph, depth) for depth in DEPTHS}
        cover = cheapest_covers(space, 1, space.policy.cover_states).covers[0]
        cheapest = encode(place(cover.matches, space), space)
        choices = [self._match(space, named, node) for node in range(len(space.graph.nodes))]
        merges = list(cheapest.merges)
        for edge, (i, j) in enumerate(space.edges):
            counts = (self._counts.get((depth, own[i], own[j])) for depth, own in named.items())
            if (count := next(filter(None, counts), None)) is not None:
                merges[edge] = int(bool(count.most_common(1)[0][0][0]))
        genes = (
            cheapest.choices[node] if match is None else space.candidates[node].index(match)
            for node, match in enumerate(choices)
        )
        return Genome(tuple(genes), tuple(merges)), sum(match is not None for match in choices) / len(choices)

    def _match(self, space: SearchSpace, named: dict[int, list[str]], node: int) -> int | None:
        for depth, own in named.items():
            for (engine, piece), _ in self._counts.get((depth, own[node]), Counter()).most_common():
                same = [m for m in space.candidates[node] if space.matches[m].engine == engine]
                exact = [m for m in same if tuple(own[i] for i in members(space.matches[m].nodes)) == piece]
                if same:
                    return min(exact or same, key=space.ms_per_node)
        return None


def more_exact(genome: Genome, space: SearchSpace, share: float = 0.8) -> Genome:
    """``genome`` with exact matches in place of those that save least for their error, until the predicted error is
    this share of the budget."""
    errors, choices, steps = space.terms[Objective.ERROR], list(genome.choices), []
    for node, gene in enumerate(choices):
        match = space.candidates[node][gene]
        exact = [m for m in space.candidates[node] if not errors[m]]
        if errors[match] and exact:
            family = space.matches[match].family
            other = min(exact, key=lambda m: (space.matches[m].family != family, space.ms_per_node(m)))
            saved_ms = max(1e-6, space.ms_per_node(other) - space.ms_per_node(match))
            steps.append((errors[match] / space.matches[match].nodes.bit_count() / saved_ms, node, other))
    for _, node, other in sorted(steps, reverse=True):
        regions = decode(Genome(tuple(choices), genome.merges), space).regions
        if math.sqrt(space.added(Objective.ERROR, {m for r in regions for m in r.matches})) <= share * BUDGET:
            break
        choices[node] = space.candidates[node].index(other)
    return Genome(tuple(choices), genome.merges)


def usual_seeds(space: SearchSpace, target: SimulatedEvaluator, budget: bool) -> list[Seed]:
    """The likely mixtures that a run measures before its costs, then its seeds."""
    whole_ms = {engine: target.latency_ms(engine_placement(space, engine)) for engine in space.engines}
    found = []
    if budget:
        levels = greedy_levels(space, likeliest(space, whole_ms)[0], BUDGET, (0.7,))
        found = [("early", encode(placement, space)) for _, placement in [*levels][:2]]
    bounds = {Objective.ERROR: BUDGET} if budget else {}
    return without_repeats([*found, *make_seeds(space, bounds, whole_ms).named], space)


def without_repeats(seeds: Sequence[Seed], space: SearchSpace) -> list[Seed]:
    return [*{decode(genome, space).key: (kind, genome) for kind, genome in reversed(seeds)}.values()][::-1]


def search(pair: str, seed: int, count: int, noise: float) -> Run | None:
    """Both runs of a pair; None if the first finds nothing within the budget."""
    first, second, budget, grows = PAIRS[pair]
    bounds = {Objective.ERROR: BUDGET} if budget else {}

    def run(target: SimulatedEvaluator, space: SearchSpace, seeds: Sequence[Seed]) -> tuple[Trace, list[Placement]]:
        trace = Trace(target, bounds.get(Objective.ERROR, math.inf))
        settings = GaSettings(patience=0, seed=seed)
        evolution = Evolution(space, trace, settings, Budget(count), lambda: 0.0, seeds)
        return trace, [*ranked(evolution.run(new_state(seed, bounds)), space)]

    target, space = target_of(first(), seed, "first", budget, grows, noise)
    _, answers = run(target, space, usual_seeds(space, target, budget))
    if not answers:
        return None
    memory = Memory(space, answers[0])
    target, space = target_of(second(), seed, "second", budget, grows, noise)
    genome, known = memory.genome(space)
    usual = usual_seeds(space, target, budget)
    ours = [("memory", genome), *([("memory, more exact", more_exact(genome, space))] if budget else [])]
    ways = {
        "usual": usual, "memory": without_repeats([*ours, *usual], space),
        "engines last": sorted(usual, key=lambda one: one[0].startswith("single")),
    }  # fmt: skip
    found = {way: run(target, space, seeds)[0].found_ms for way, seeds in ways.items()}
    remembered = decode(genome, space)
    return Run(pair, seed, known, target.latency_ms(remembered), target.error(remembered), found)


def show(runs: Sequence[Run]) -> None:
    """What one pair's runs found."""
    known, within = np.mean([run.known for run in runs]), np.mean([run.error <= BUDGET for run in runs])
    print(f"{runs[0].pair}: {len(runs)} seeds, {known:.0%} of known kind, {within:.0%} remembered within the budget")
    for way in runs[0].found_ms:
        line = []
        for mark in MARKS:
            logs = np.log([run.found_ms[way][mark - 1] / run.found_ms["usual"][mark - 1] for run in runs])
            logs = logs[np.isfinite(logs)]
            some = len(logs) > 1
            line.append(f"{np.exp(logs.mean()):.3f} ± {logs.std(ddof=1) / len(logs) ** 0.5:.3f}" if some else "-")
        final_ms = [min(found[-1] for found in run.found_ms.values()) for run in runs]
        near = [
            next((k + 1 for k, ms in enumerate(run.found_ms[way]) if ms <= 1.02 * final), len(run.found_ms[way]) + 1)
            for run, final in zip(runs, final_ms, strict=True)
        ]
        after = f"after {MARKS}: {', '.join(line)}"
        print(f"  {way:13} {after}; within 2 % of the best after {np.median(near):g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--placements", type=int, default=MARKS[-1])
    parser.add_argument("--noise", type=float, default=0.02, help="relative noise of a measurement")
    parser.add_argument("--pairs", nargs="+", choices=list(PAIRS), default=list(PAIRS))
    options = parser.parse_args()
    runs: list[Run] = []
    for pair in options.pairs:
        found = (search(pair, seed, options.placements, options.noise) for seed in range(options.seeds))
        of_pair = [run for run in found if run is not None]
        show(of_pair)
        runs += of_pair
        options.output.write_text(json.dumps([asdict(run) for run in runs]))


if __name__ == "__main__":
    main()
