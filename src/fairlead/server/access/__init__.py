"""Authentication by token, authorization and rate limits."""
