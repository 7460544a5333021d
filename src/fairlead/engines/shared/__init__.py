"""Parts that several engines share: recovery, multi-node leases, node state, checks."""
