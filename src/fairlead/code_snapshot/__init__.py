"""Code snapshots: copies of a working directory that later edits do not change."""
