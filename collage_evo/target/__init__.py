"""What everything is measured and compiled for: the processor, its cores, and who else uses them.

A ``Target`` says what code is compiled for and latency is measured on: device, threads, the processor's model and
instruction sets, the C library, a GPU's model and driver. Its digest is part of every key: pieces, costs, tuning
records, baselines of a run to be resumed, the checkpoint's fingerprint; with each backend's version, that is what
decides code and cost. Core numbers are not. A cluster's worker of another digest is left out.
"""
