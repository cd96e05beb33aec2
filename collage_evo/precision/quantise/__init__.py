"""int8 quantisation: eligible operators, calibrated ranges, and regions with quantisers.

``precision/quantise/write.py`` inserts QuantizeLinear and DequantizeLinear around some of a region's operators.

Activations are uint8 with one scale a tensor, from one table of calibrated ranges (``precision/quantise/ranges.py``,
the least and greatest value over the samples, found inside the model); weights are int8, symmetric, with one scale an
output channel. Biases are corrected (docs/quantisation.md). The library decides the placing of quantisers
(``Quantisers``): OpenVINO needs them before an operator's inputs, ONNX Runtime around convolutions, whose output must
be rounded too, and takes products as integers with a result in float32, which its own operator expresses. OpenVINO
subtracts a zero point of a product's input in a separate loop, so in its form products read numbers from zero, and
their bias compensates for that. Operators that only pass values on have their input's scale, so that nothing is
rounded twice. No quantiser is between a convolution and the activation that is fused into it.

OpenVINO runs a product of two activations in int8 only where its right side is signed and neither has a zero point,
which is left out (docs/quantisation.md). A backend inspects the graph that the library made of a piece: an operator
that should run in int8 and does not is a build failure.
"""
