"""Open leases of a live cluster: launch, renewal, measurements, outcomes."""
