"""History of jobs: reported metrics, leases, exits and usage."""
