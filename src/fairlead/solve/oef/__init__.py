"""Programs of OEF: equal normalised levels, and greatest total value without envy."""
