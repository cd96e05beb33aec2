"""Checks of rewrites against the operators they replace, by ONNX Runtime, and random graphs for these checks."""
