"""Material of tests and benchmarks: simulated targets, known optima, a backend that misbehaves."""
