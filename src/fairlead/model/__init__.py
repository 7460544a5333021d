"""Data model: jobs, tenants, cluster, speeds, allocations, plans, events, commands, errors."""
