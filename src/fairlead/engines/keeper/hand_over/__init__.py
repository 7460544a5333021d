"""Hand-over: processes that start before their lease, while their predecessors train."""
