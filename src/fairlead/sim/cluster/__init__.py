"""Virtual cluster: progress, device sharing, copies and measurements of jobs."""
