"""The command line: thin, one module a group of commands."""
