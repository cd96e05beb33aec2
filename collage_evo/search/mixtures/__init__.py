"""Mixtures of precisions: a mixed-precision placement at each level of the error budget;
what was measured corrects predicted errors."""
