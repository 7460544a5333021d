"""Who should get what share: one file a policy, registered by entry point."""
