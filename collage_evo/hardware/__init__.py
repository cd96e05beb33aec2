"""The target of compilation and measurement: the processor, its cores, and other users of them.

A ``Target`` describes it: threads, the processor's model and instruction sets, the C library, and an accelerator, if
there is one. Its digest is part of every key: pieces, costs, tuning records, baselines of a run to be resumed, the
checkpoint's fingerprint. With each backend's version it determines code and cost; core numbers do not. A cluster's
worker with another digest is excluded.
"""
