"""Transforms of a region before a backend compiles it: lower precisions and rewrites, as one value and one model.

int8 is not a library's option but written into the region, and so are bfloat16 that a piece mixes with float32,
weights in int8, and equal graphs that may run faster. A match or a region holds all of it in one value, its ``Edits``
(``precision/transforms/edits.py``): names of transforms with node sets. Keys, jobs, saved costs and checkpoints have
it as text. So one compiled piece can mix operators in float32, in bfloat16 and in int8, rewritten or not, and only
its surroundings have borders, in float32. A variant that writes edits names its ``base``, the variant that compiles
the piece; regions of one base may merge.

Only ``precision/transforms/piece.py`` turns edits into a model and into keys. A region is rewritten first
(``rewrites/``), then precisions are written into it, in the order of ``precision/transforms/catalogue.py``. Both may
be at the same operators: the replacement of a site in int8 or bfloat16 has that precision as far as it can
(``precision/transforms/rewritten.py``). Ranges of tensors that only the rewritten region has follow from those around
them, where only moves, pools and splits are between; a site in which no range follows has no match in int8.

A precision is a ``Transform`` (``precision/transforms/transform.py``): where and how to write it, its keys, and the
trial of one operator in it. ``precision/transforms/int8.py`` is int8 between quantisers (implemented in
``precision/quantise/``), ``precision/transforms/casts.py`` a smaller floating type between Casts around stretches of
operators, since a library's hint for the whole piece leaves nothing in float32, and
``precision/transforms/weights.py`` has only weights in int8, where reading them takes longer than multiplying by
them, and ``precision/transforms/rows.py`` gives each row of a product's activations a scale of its own; both need no
calibration.

``precision/transforms/sensitivity.py`` measures each operator's contribution to the error: one model has a switch at
each operator (``precision/transforms/switches.py``), and one operator at a time computes on rounded numbers. Where
there is no time to try each, sets of operators and halves of these are tried (``precision/transforms/bisection.py``).
The error of label outputs is the share that differs, as in judging. Squared errors add up: of MobileNet v2, ResNet-50
and BERT, whole and with random 40 % of the operators, predicted over measured was 0.77 to 1.10 in int8, 0.95 to 1.53
for whole models in bfloat16.
"""
