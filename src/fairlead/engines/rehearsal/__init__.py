"""The rehearsal engine: simulated nodes for load tests of a real control plane."""
