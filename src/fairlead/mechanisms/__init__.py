"""What runs this round: one file a mechanism, registered by entry point."""
