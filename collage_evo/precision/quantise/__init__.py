"""int8 quantisation: eligible operators, calibrated ranges, and regions with quantisers.

``precision/quantise/write.py`` inserts QuantizeLinear and DequantizeLinear around some of a region's operators.

Activations are uint8 with one scale a tensor, from one table of calibrated ranges (``precision/quantise/ranges.py``,
the least and greatest value over the samples, found inside the model); weights are int8, symmetric, with one scale an
output channel. Biases are corrected (docs/quantisation.md). Operators that only pass values on have their input's
scale, so that nothing is rounded twice. No quantiser is between a convolution and the activation that is fused into
it.

Libraries differ in where quantisers have to stand, which operators their integer kernels take, and which form of them
is fast. Each backend passes that as an ``Int8Form`` (``precision/quantise/form.py``), and inspects the graph that the
library made of a piece: an operator that should run in int8 and does not is a build failure.
"""
