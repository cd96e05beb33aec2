"""PyTorch on NVIDIA GPUs: programs that run eagerly, or as Inductor's kernels."""
