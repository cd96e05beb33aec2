"""Measures jobs in processes that may die, one to each timing slot, on this machine or a cluster."""
