"""The backend contract, and one package for each library; ``cuda/`` has those for NVIDIA GPUs."""
