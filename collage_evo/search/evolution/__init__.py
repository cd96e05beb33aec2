"""The evolutionary search: seeds, variation, selection, states and checkpoints.

``search/evolution/evolution.py`` makes many children and measures a few. Which ones, a learned cost model says
(``search/surrogate/model.py``): it starts as the additive one and is fitted to every placement measured, with
features for engines, borders, nodes, edges, backends used together and copies (``search/surrogate/features.py``).
It also gives the dynamic program new costs, whose cheapest cover is a candidate, and samples of what may be true,
so that the batch explores. Times taken while others were at work on the same cores are marked, and it trusts them
less.

A generation ends when all that it proposes is taken to be compiled. What is not measured by then is kept in the
state (``SearchState.pending``) and comes first in the next one. So nobody waits for a piece that compiles for long,
the next children are bred meanwhile, and they know of all that was measured but the last few. Which outcomes a
state has, not when they came, decides what the next one proposes.

What compiling a candidate costs has no say in what is proposed. To choose by predicted gain for each second, where
pieces that are compiled already cost nothing, was tried on three simulated targets with four seeds each, compiling a
whole model taken for twice all else: as many placements in equal time, and a best within 1 % of what is found without
(0.991, 1.000 and 0.997 times its latency). Most candidates are mostly new pieces, whose prices are alike.

Every genome decodes to a valid placement; equal placements are one individual and are measured once. The final's
candidates are taken from the order of the learned model and from that of the measured times in turn
(``search/evolution/ranking.py``), since the shortest of many noisy times is the luckiest; one of the three has an
error of 95 % of the budget at most (``run/front.py``), should samples that the search has not seen tell of more.
``tests/support/targets.py`` holds simulated targets with known optima, on which ``benchmarks/search_methods.py``
compares this search with others.

A measured placement has a value for each ``Objective`` (``placement/outcome.py``: latency, error). Latency is what is
made small; the search's state has a bound on each other one. Without any, elite and tournaments choose who survives.
With some, NSGA-II does, the hall of fame is the Pareto front, progress is its hypervolume, and the best is the
fastest that is measured to keep all bounds. What is not latency has to add up over matches (``SearchSpace.terms``),
as squared errors do: seeds then come from ``search/cover/front.py``, where the dynamic program on latency + lambda x
what is added gives the lower hull of both, and lambda is bisected at the bound; each cover that comes up on the way
is measured while the program works on the next, which takes seconds on a large model. Before these come rungs of a
ladder (``search/evolution/knapsack.py``): operators in order of what they save for their error, as far as a share of
the budget goes, compiled as one piece. ``search/surrogate/terms.py`` corrects what each match is said to add by what
placements measured. A place in the batch goes to the placement that is fastest among those within its bounds, if what
it believes of all objectives is right (``search/evolution/acquisition.py``); for most these are the search's bounds,
for the others what one of the parents has. ``tests/support/precise.py`` has targets whose optimum under a budget is
known, for ``benchmarks/precision_search.py``.

A ``SearchState`` holds all that the next generation depends on. It is written after each generation as JSON with a
checksum, atomically, and the one before is kept.
"""
