"""What is done to a region before a backend compiles it: lower precisions and rewrites, as one value and one model.

int8 is no option of a library but something written into the region that it gets, and so are bfloat16 where it stands
beside float32 in one piece, weights in int8, and equal graphs that may run faster. What is written where is one value
of a match or a region, its ``Edits`` (``precision/transforms/edits.py``): names of transforms with node sets. Keys,
jobs, saved costs and checkpoints have it as text. So operators in float32, in bfloat16 and in int8, rewritten or not,
stand in one compiled piece, and only what surrounds the piece sees borders, in float32. A variant by which something
is written names its ``base``, the variant that compiles the piece; regions of one base may merge.

``precision/transforms/piece.py`` is the one place where edits become a model, and where what they are goes into keys.
A region is rewritten first (``rewrites/``), then precisions are written into it, in the order of
``precision/transforms/catalogue.py``. Both may be at the same operators: what stands in place of a site that is in
int8 or bfloat16 is in it as far as it can be (``precision/transforms/rewritten.py``). Ranges of tensors that only the
rewritten region has follow from those around them, where nothing but moves, pools and splits lies between; a site in
which no range follows has no match in int8.

A precision is a ``Transform`` (``precision/transforms/transform.py``): where it can be written, how, what keys cover
of that, and how one operator is tried in it. ``precision/transforms/int8.py`` is int8 between quantisers
(``precision/quantise/`` has how that is done), ``precision/transforms/casts.py`` a smaller floating type between
Casts around stretches of operators, since a library's hint for the whole piece leaves nothing in float32, and
``precision/transforms/weights.py`` has weights alone in int8, where reading them takes longer than multiplying by
them, which needs no calibration.

``precision/transforms/sensitivity.py`` tells what each operator adds to the error: one model has a switch at each
operator, one operator at a time computes on rounded numbers. Outputs that are labels err there as they are judged, by
the share that differs. Squared errors add up: of MobileNet v2, ResNet-50 and BERT, whole and with random 40 % of the
operators, predicted over measured was 0.77 to 1.10 in int8, 0.95 to 1.53 for whole models in bfloat16.
"""
