"""The Ray engine: leases held by placement groups, processes run by node agents."""
