"""Timeline: its routes, messages and views."""
