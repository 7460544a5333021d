"""Physics of the virtual cluster: effects that slow jobs down, and their true speeds."""
