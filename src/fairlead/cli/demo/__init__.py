"""The `fairlead demo` command."""
