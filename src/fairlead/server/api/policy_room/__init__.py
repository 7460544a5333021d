"""Policy room: consequences of changes, audit and trades of the running policy."""
