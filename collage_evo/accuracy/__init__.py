"""How wrong an answer may be, and how wrong it is: budgets, a person's metric, errors over samples, their split.

Two rules, because there are two reasons for an error. What computes in float32 throughout differs by rounding: more
than ``verify.tolerance`` is a fault. What has a lower precision anywhere (``backends/select.py``:
``exact_arithmetic``) is as far off as its arithmetic makes it: its error is measured over all samples of the
search, and refused only where the front ends (``accuracy/limits.py``), so that placements beyond
the budget are points of the front. A piece alone is refused if it is broken; what it adds is seen in the whole.
With a metric every placement has the metric's drop.

The samples are taken and split once, in the stage of the model (``run/stages/samples.py``), and lie in the run's
``work/`` with what the reference gave: as many as the reference runs in two seconds, so that judging takes no
longer than timing. That is decided there and not where placements are judged, because errors on different samples
do not compare.

After the race ``run/stages/held_out.py`` judges the answer on samples that chose nothing. If it breaks the budget,
it leaves the race, which is run again among the others; after three such, placements are asked in float32 only.
Artifacts say of themselves whether they are exact, and by which budget they were made.
"""
