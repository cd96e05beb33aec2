"""Selection of the answer: baselines, paired races, and the sequential test that decides them.

A model's place in memory makes it some tenths of a percent faster or slower for as long as it stays there, which
longer timing does not average out. So a round of the final race (``answer/race.py``) loads all contestants anew,
unless that takes a second, in random order and behind blocks of random sizes, and counts as one value: the median
over neighbouring sample batches (three runs or 10 ms, without the first third, which runs on caches that another
contestant filled). Each contestant has up to 14 batches a round, fewer for a large model, as many as fit into the
loading time. On one thread all contestants are loaded in one process. On several threads, and after a crash of that
process, each contestant has a process of its own, and batches alternate between processes. Before the race each is
loaded once in a fresh process, which checks it and measures the cost of serving.

The race ends as soon as it is decided (``answer/sequential.py``). Looks at an ordinary 95 % interval after 3, 6, 10,
16, 22 and 28 rounds would let 10 % of equals win (``2d0817f2:benchmarks/stopping.py``), so each look has a stricter
one, in the manner of Pocock, and with several candidates stricter by their number: of equals fewer than one in a
hundred wins. The variance of the rounds is pooled with the one expected from repeats. The report prints the mean that
Student's interval belongs to, on a logarithmic scale.

Two placements race against the two fastest baselines that were within 15 % of the best and the libraries with their
defaults (``answer/answer.py``: ``Standing``), all in one race. To be the answer a placement has to beat the best
baseline and those that may still be the best; the fastest such placement wins. A contestant that is unlikely to be
0.5 % faster than a rival leaves after any round but the first two, which cannot turn a loss into a win. So baselines
race on without placements until one of them is the best. A race of seconds cannot see a ratio that changes from
minute to minute: the report shows over how long its rounds were spread. ``2d0817f2:benchmarks/aa.py`` races an
artifact against a copy and against slower ones. With ``--layouts`` it shows that loading anew draws as new a layout
of memory as another process does: processes differ no more than rounds within one process.

When an ended run is resumed, the answer that it published takes part, and stays unless a contestant beats it. Without
new measurements there is no race.

A baseline three times as slow as the best before it is given up after few runs, after one where a run takes half a
second; variants that run most models well without compiling for long (``Backend.runs_any_model``) come first, the
accelerator's before the host's, and the best of each group is published if there is no answer yet. Native code cannot
be interrupted, so a process whose first run takes far too long ends itself by an alarm (``fitness/timing.py``), which
counts as far behind. A backend ten times as slow is not tried in its other variants.
"""
