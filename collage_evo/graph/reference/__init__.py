"""A model's outputs by ONNX Runtime without optimisations, errors against them, and how far rounding moves them."""
