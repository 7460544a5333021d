"""The command line: thin, one module per group of commands."""
