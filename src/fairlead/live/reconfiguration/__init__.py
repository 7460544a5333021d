"""Changes of the scheduling config, at the start of a server and while it runs."""
