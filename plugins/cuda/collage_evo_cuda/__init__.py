"""Backends on NVIDIA GPUs, and PyTorch on the CPU too.

A class for each library on a GPU; ``libraries/`` joins it with the class of the same library for the CPU.
"""

PACKAGE = "collage-evo-cuda"
"""The distribution, whose extras install the libraries."""
