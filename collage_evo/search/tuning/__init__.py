"""Hyperparameters of the search, tuned by Optuna on simulated targets.

``search.tune`` (and ``tune``) lets Optuna choose the search's own settings: after the first generation, targets are
drawn from the learned cost model, each as likely to be true as the measurements allow, and settings are tried on
those. ``sweep`` makes whole runs over any keys of the configuration; each trial is a run directory and goes on
after a kill.
"""
