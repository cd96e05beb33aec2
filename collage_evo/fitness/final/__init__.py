"""Comparisons that decide: baselines, paired races, the answer."""
