"""Fairness audit of one policy: Pareto slack, envy, sharing incentive, misreporting."""
