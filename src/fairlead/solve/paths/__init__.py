"""Water-filling along a path that a policy defines."""
