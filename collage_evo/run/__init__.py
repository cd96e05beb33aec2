"""Runs: a plan of records (``plan.py``), the run directory, and what later commands read from it.

Every stage is bounded in time. Costs end with ``costs.seconds``, however much is left: no match begins later, no more
are compiled than can be timed at the pace so far, and of each node set one engine goes first, so that the others are
given up by comparison with it. A generation of the search ends with the search's time: placements that would begin
later have no outcome, and come first if the search goes on. No round of the final race begins that would end after
``final.seconds``, once there were three: the length of rounds decides, never a candidate's result, so that few rounds
are as honest as many, but less sharp. Unless ``search.seconds`` is given, the search gets what the stages before it
left of 100 seconds (more for a slow model), less the time that the final comparison takes, and at least 15 seconds;
the run directory records this when the search begins, and a resumed run has no more (``run/budget.py``).

A precision in which a single backend takes half as long again as in float32, where it runs too, is excluded before
matches are made (``run/stages/excluded_engines.py``). So is an engine that stands on one that is excluded, that does
not run the whole model, or for which the best single backend is 1.5 times as fast.
"""
