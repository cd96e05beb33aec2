"""Hyperparameters of the search, tuned by Optuna on simulated targets."""
