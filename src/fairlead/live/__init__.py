"""A real cluster: the pure core against the wall clock, a store and an engine."""
