"""Evolutionary search: seeds, variation, selection, states and checkpoints.

``search/evolution/evolution.py`` makes many children and measures a few. A learned cost model selects them
(``search/surrogate/model.py``): it starts as the additive one and is fitted to every measured placement, with
features for engines, borders, nodes, edges, backends used together and copies (``search/surrogate/features.py``). It
also gives the dynamic program new costs, whose cheapest cover is a candidate, and samples of its posterior, so that
the batch explores. Contended times are marked, and the model weights them less.

A generation ends when all of its proposals have started to compile. Proposals that are not measured by then stay in
the state (``SearchState.pending``) and come first in the next generation. So the search does not wait for a piece
that compiles for long, the next children are bred meanwhile, and they use all measurements but the last few. The
outcomes in a state, not their times of arrival, decide the proposals of the next one.

The cost of compiling a candidate does not affect proposals (docs/studies.md, "Other questions about the search").

Every genome decodes to a valid placement; equal placements are one individual and are measured once. The final's
candidates come alternately from the order of the learned model and from that of the measured times
(``search/evolution/ranking.py``), since the shortest of many noisy times is the luckiest; one of the three has an
error of 95 % of the budget at most (``answer/candidates.py``), in case samples that the search has not seen show a
larger one. ``tests/support/targets.py`` contains simulated targets with known optima, on which
``benchmarks/search_methods.py`` compares this search with others.

A measured placement has a value for each ``Objective`` (``genome/outcome.py``: latency, error). The search
minimises latency; its state has a bound on each other objective. Without any, elite and tournaments choose the
survivors. With some, NSGA-II does, the hall of fame is the Pareto front, progress is its hypervolume, and the best is
the fastest that is measured within all bounds. Objectives other than latency have to add up over matches
(``SearchSpace.terms``), as squared errors do: seeds then come from ``genome/cover/front.py``, where the dynamic
program on latency + lambda x the other objective gives the lower hull of both, and lambda is bisected at the bound;
each cover found on the way is measured while the program works on the next, which takes seconds on a large model.
Before these come budget levels (``search/mixtures/knapsack.py``): operators in order of saved time for their error,
up to a share of the budget, compiled as one piece. ``search/surrogate/terms.py`` corrects the predicted contribution
of each match by measurements of placements. A place in the batch goes to the placement that is fastest among those
within its bounds, under the place's belief about all objectives (``search/evolution/acquisition.py``); for most these
are the search's bounds, for the others the values of one of the parents. ``tests/support/precise.py`` has targets
whose optimum under a budget is known.

A ``SearchState`` contains all inputs of the next generation. It is written after each generation as JSON with a
checksum, atomically, and the one before is retained.
"""
