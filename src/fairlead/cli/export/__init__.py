"""The `fairlead export` command: scheduling advice for sites that start their own jobs."""
