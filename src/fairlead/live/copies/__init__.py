"""Copies of a job on several nodes: their parts, their reports and the merge of their states."""
