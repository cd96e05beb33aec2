"""TVM on NVIDIA GPUs: kernels scheduled by TVM's own GPU rules, compiled ahead, called one after the other."""
