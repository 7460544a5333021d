"""The running round and the changes at its end: route, messages and view."""
