"""Lower precisions: transforms of regions, int8 quantisation, and the sensitivity of the error to each operator."""
