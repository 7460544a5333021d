"""A virtual cluster: traces in, the scheduler's own decisions, figures and reports out."""
