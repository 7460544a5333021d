"""Private Slurm and Ray clusters on this machine, for the demo, tests and trials."""
