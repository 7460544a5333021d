"""Commands that simulate, allocate, audit and explain without a server."""
