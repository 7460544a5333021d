"""Growth: new members of a gang start while the others still train."""
