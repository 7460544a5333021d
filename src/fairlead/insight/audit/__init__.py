"""Fairness audits of a policy: Pareto slack, envy, sharing incentive, misreports."""
