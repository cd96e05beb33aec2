"""Levels: errors that mixtures aim at, as shares of the error budget, the likeliest first."""

from __future__ import annotations

AS_PREDICTED = (0.95, 0.7, 1.3, 0.38, 0.19, 0.27, 0.12)
"""Of a family of which nothing was measured: predictions are off by a third.

Those from 0.38 on serve ``pick`` for a smaller budget afterwards: 0.02 or 0.01 of a run for 0.05.
"""
CORRECTED = (0.95, 0.8, 0.65, 1.1, 0.38, 0.27, 0.19, 0.12)
"""Of a family whose predictions a measurement has corrected: four such were 0.88 to 1.29 times as predicted (ViT-B/16
and an encoder of 24 layers, int8, Xeon held to AVX2), where uncorrected ones were 1.7 to 2.2 times."""
MAX_LEVELS = 5
"""Levels of a family. If everything in the lowest precision is within several shares of the budget, smaller ones
follow."""
FIRST = (0.85, 0.45)
"""Before the costs, of a family of which nothing was measured: two levels, whose errors correct the next. Chosen:
where one of each kind of operators was tried, a ViT-B/16 and an encoder erred 0.9 to 1.3 times as much as predicted,
a decoder 1.6 times."""
NEXT = (0.92,)
"""Before the costs, after those. Chosen."""
OTHER_BUDGET = (0.95, 0.85)
"""For a budget that the search was not for, corrected by its measurements: docs/studies.md."""
