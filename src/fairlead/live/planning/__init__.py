"""Plans that fail: recovery without some jobs, the jobs left out, and faults of plug-ins."""
