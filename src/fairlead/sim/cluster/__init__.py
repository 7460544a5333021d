"""The virtual cluster: progress, partners, copies, interference and measurements of jobs."""
