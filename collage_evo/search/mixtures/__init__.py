"""Mixtures of precisions: mixed-precision placements at levels of the error budget, each in one piece if it can be.

``knapsack.py`` makes them, at the levels of ``levels.py``; ``likely.py`` decides which are measured before the costs,
and for a budget that the search was not for; ``families.py`` which families they are of. What was measured
(``measured.py``) corrects the errors that are predicted of the next (``correction.py``). The stage that measures them
is ``run/stages/mixtures.py``; the search's seeds contain them too.
"""
