"""Hyperparameter search: many trials as one job.

`strategies` and `prediction` are pure and serve both the `controller` of a search on a server and
the `simulation` of one. `optuna` runs the trials of an Optuna study.
"""
