"""Surrogate cost model: predictions from measured placements, and samples of its posterior.

As in Ansor (OSDI 2020) a model fitted after every batch picks which of many candidates are worth measuring. Here it
is Bayesian linear regression on the features of a placement, with the additive model as its prior mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collage_evo.runtime.timing import CONTENDED
from collage_evo.search.surrogate.features import GROUPS, FeatureMap
from collage_evo.search.surrogate.regression import MOST_ROWS, Regression, Vector, table

PRIOR = dict(zip(GROUPS, (0.15, 0.3, 0.1, 0.02, 0.2, 0.2, 0.2, 0.2, 0.02, 0.3), strict=True))
"""Prior standard deviation of each kind's weights."""
NOISE = 0.01
"""Noise of a measured latency, a share, from which the fit begins; each search fits its own. Chosen."""
ASTRAY = CONTENDED
"""Additional relative error of a contended time: other programs had that share of the cores' time, or more. It is not
fitted, since most searches have few such times."""


class Surrogate(Regression):
    """Fitted to ``rows`` with latencies in ms; without any it is the additive model, uncertain by the prior.

    Of more than ``MOST_ROWS``, only the fastest are used.

    ``contended`` flags each latency that was contended: such a one counts less. If it is empty, none is. ``mean``
    contains the most likely weight of every feature.
    """

    def __init__(
        self,
        features: FeatureMap,
        rows: Sequence[Vector],
        latency_ms: Sequence[float],
        contended: Sequence[bool] = (),
    ) -> None:
        fastest = sorted(sorted(range(len(rows)), key=latency_ms.__getitem__)[: MOST_ROWS])
        used = [rows[index] for index in fastest]
        # Relative errors count, so that slow placements do not outweigh the fast ones that matter.
        latency = np.array([latency_ms[index] for index in fastest])
        gap = 1.0 - np.array([row.predicted for row in used]) / latency
        astray = np.array([ASTRAY if contended and contended[index] else 0.0 for index in fastest])
        prior = np.array([*PRIOR.values(), NOISE])
        super().__init__(table(used, latency, features.width), gap, features.group_of, prior, astray)
