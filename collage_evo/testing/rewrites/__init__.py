"""Checks of rewrites against what they replace, by ONNX Runtime alone, and random graphs to check them on."""
