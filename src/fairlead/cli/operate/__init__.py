"""Commands for operators: run a server, check its settings and its machine."""
