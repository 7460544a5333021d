"""Checks that `fairlead doctor` runs on the nodes of any cluster engine."""
