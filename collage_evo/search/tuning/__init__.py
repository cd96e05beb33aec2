"""Hyperparameters of the search, tuned by Optuna on simulated targets.

``search.tune`` (and ``tune``) lets Optuna choose the search's own settings: after the first generation, targets are
drawn from the posterior of the learned cost model, and settings are tried on those. ``sweep`` makes whole runs over
any keys of the configuration; each trial is a run directory and continues after a kill.
"""
