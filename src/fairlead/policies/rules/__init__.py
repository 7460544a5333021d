"""Rules that apply under every policy: priorities, quotas, tenant rows, validation."""
