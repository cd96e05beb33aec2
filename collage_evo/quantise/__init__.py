"""Lower precisions as rewrites of a region: which operators in int8, with which calibrated ranges, or in bfloat16.

int8 is no option of a library but a rewrite of the region that it gets: QuantizeLinear and DequantizeLinear around
some of its operators (``quantise/write.py``). So operators in float32, in bfloat16 and in int8 stand in one
compiled piece, and only what surrounds the piece sees borders, in float32. A variant with quantisers names its
``base``, the variant that compiles the piece; regions of one base may merge.

bfloat16 is written in the same way, between Casts around stretches of operators (``quantise/casts.py``), since a
library's hint for the whole piece leaves nothing in float32. Which nodes of a match or a region are written in what
is one value, its ``Numerics`` (``quantise/numerics.py``): keys, jobs, saved costs and checkpoints have it as text,
and ``quantise/region.py`` makes the model of it.

Weights alone are in int8 where reading them takes longer than multiplying by them (``quantise/weights.py``). That
needs no calibration.

Activations are uint8 with one scale a tensor, from one table of calibrated ranges (``quantise/ranges.py``, the
least and greatest value over the samples, found inside the model); weights are int8, symmetric, with one scale an
output channel. Biases are corrected (docs/quantisation.md). Where quantisers stand is the library's to say
(``Quantisers``): OpenVINO wants them before an operator's inputs, ONNX Runtime around convolutions, whose output
must be rounded too, and takes products as integers with a result in float32, which is written with its own
operator. What only passes values on has its input's scale, so that nothing is rounded twice. Nothing stands between
a convolution and the activation that is fused into it. A sum that begins with a convolution reads that one
unrounded: libraries add inside the convolution.

OpenVINO runs no product of two activations in int8, and transposed convolutions only where nothing is negative; its
padded averages of u8 are wrong. A backend looks at the graph that the library made of a piece, and what was to run
in int8 and does not is a build failure.

``quantise/shares.py`` tells what each operator adds to the error: one model has a switch at each operator, one
operator at a time computes on rounded numbers. Outputs that are labels err there as they are judged, by the share
that differs. Squared errors add up: of MobileNet v2, ResNet-50 and BERT, whole and with random 40 % of the
operators, predicted over measured was 0.77 to 1.10 in int8, 0.95 to 1.53 for whole models in bfloat16.
"""
