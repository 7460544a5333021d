"""Text, JSON, YAML and CSV parsing with errors that name file, line and column."""
