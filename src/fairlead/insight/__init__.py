"""Why it is so, what would change it, and whether it is fair."""
