"""int8: which operators may be in it, with which calibrated ranges, and a region with that written into it.

QuantizeLinear and DequantizeLinear stand around some of a region's operators (``precision/quantise/write.py``).

Activations are uint8 with one scale a tensor, from one table of calibrated ranges (``precision/quantise/ranges.py``,
the least and greatest value over the samples, found inside the model); weights are int8, symmetric, with one scale an
output channel. Biases are corrected (docs/quantisation.md). Where quantisers stand is the library's to say
(``Quantisers``): OpenVINO wants them before an operator's inputs, ONNX Runtime around convolutions, whose output must
be rounded too, and takes products as integers with a result in float32, which is written with its own operator.
OpenVINO undoes a zero point of a product's input in a loop of its own, so in its form products read numbers from
zero, and their bias makes up for that. What only passes values on has its input's scale, so that nothing is rounded
twice. Nothing stands between a convolution and the activation that is fused into it. A sum that begins with a
convolution reads that one unrounded: libraries add inside the convolution.

OpenVINO runs a product of two activations in int8 only where its right side is signed and neither has a zero point,
which is left out (docs/quantisation.md), and transposed convolutions only where nothing is negative; its padded
averages of u8 are wrong. A backend looks at the graph that the library made of a piece, and what was to run in int8
and does not is a build failure.
"""
