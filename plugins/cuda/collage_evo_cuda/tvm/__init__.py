"""TVM on NVIDIA GPUs: kernels scheduled by TVM's own GPU rules, compiled ahead of time, called in order."""
