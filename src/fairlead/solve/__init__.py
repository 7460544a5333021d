"""Mathematics: classes, linear programs, lexicographic max-min and its certificates."""
