"""Backends on NVIDIA GPUs: a class for each library, also where the same library has another one for the CPU."""
