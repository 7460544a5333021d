"""Options, output and error handling shared by all commands."""
