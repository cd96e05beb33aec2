"""Accuracy of answers: budgets, metrics, errors over samples and their split.

Two rules, because there are two reasons for an error. A placement in float32 throughout differs by rounding: more
than ``verify.tolerance`` is a fault. One with a lower precision anywhere (``backends/select.py``:
``exact_arithmetic``) has the error of its arithmetic: it is measured over all samples of the search, and refused only
where the front ends (``accuracy/limits.py``), so that placements beyond the budget are points of the front. A piece
by itself is refused if it is broken; its contribution shows in the whole. With a metric every placement has the
metric's drop.

The samples are taken and split once, in the stage of the model (``run/stages/samples.py``), and lie in the run's
``work/`` with the reference's outputs: as many as the reference runs in two seconds, so that judging takes no longer
than timing. That is decided there and not where placements are judged, because errors on different samples do not
compare.

After the race ``run/stages/held_out.py`` judges the answer on samples that had no part in the search. If it exceeds
the budget, it leaves the race, which is run again among the others; after three such, only float32 placements remain.
Artifacts record whether they are exact, and the budget that they were made for.
"""
