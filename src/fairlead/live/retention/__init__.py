"""Retention: removes ended jobs, their files and old audit entries by age and size."""
