"""The web pages: static files that use the public REST API only."""
