"""The Slurm engine: leases submitted as Slurm jobs pinned to nodes."""
