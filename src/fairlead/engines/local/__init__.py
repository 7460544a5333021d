"""The local engine: gangs as process groups on this machine."""
