"""Expected costs: those that the times of whole models let expect, before any match is timed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from collage_evo.backends.enumerate import Matches
from collage_evo.backends.select import arithmetic_of
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.genome.cost_model import Border, CostModel, Engine, bordering
from collage_evo.genome.outcome import Terms
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Match
from collage_evo.search.mixtures.measured import Mixture


def expected_space(
    graph: Graph, matches: Matches, terms: Terms, baseline_ms: Mapping[Engine, float]
) -> SearchSpace:
    """The search space at expected costs: shares of the whole model's time by operations and bytes, without borders.

    Raises:
        NotSearchable: some operator is in no match whose time can be expected.
    """
    guess = guessed_ms(graph)
    whole = sum(guess)
    engines = {match.engine for match in matches.matches if not match.rewrites}
    families = {match.engine: match.family for match in matches.matches if match.family != match.engine}

    def expected_ms(engine: Engine) -> float:
        if engine in baseline_ms:
            return baseline_ms[engine]
        family, weight_bytes = families.get(engine, engine), arithmetic_of(*engine).weight_bytes
        known = ((ms, arithmetic_of(*one)) for one, ms in baseline_ms.items() if families.get(one, one) == family)
        shares = ((ms, weight_bytes / of.weight_bytes) for ms, of in known if of.weight_bytes >= weight_bytes)
        # Half of what the bytes of its weights promise, from the arithmetics of its family that were measured.
        return min((ms * (1 + share) / 2 for ms, share in shares), default=math.inf)

    per_guess = {engine: expected_ms(engine) / whole for engine in engines}
    ms = tuple(
        float("inf") if match.rewrites else per_guess[match.engine] * sum(guess[n] for n in members(match.nodes))
        for match in matches.matches
    )
    borders = {bordering(engine): Border(0.0, 0.0) for engine in engines}
    cost = CostModel(ms, borders, families=families)
    return SearchSpace(graph, matches.matches, cost, matches.refusals, terms)


def apportioned_ms(
    early: Sequence[Mixture], graph: Graph, matches: Sequence[Match], best_ms: float
) -> dict[int, float]:
    """The latencies of the mixtures that take less than ``best_ms``, which may be the answer, apportioned to their
    matches. ``matches``: all of the search."""
    guessed = guessed_ms(graph)
    timed = ((one.placement.regions, one.outcome.latency_ms) for one in early)
    faster = [(regions, ms) for regions, ms in timed if ms is not None and ms < best_ms]
    ms_of = multimap((match, ms) for regions, ms in faster for region in regions for match in region.matches)
    whole = sum(guessed)
    shares = {match: sum(guessed[node] for node in members(matches[match].nodes)) / whole for match in ms_of}
    return {match: shares[match] * min(each) for match, each in ms_of.items()}
