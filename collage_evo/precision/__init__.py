"""Lower precisions: transforms of regions, int8 quantisation, sensitivity of the error to each operator."""
