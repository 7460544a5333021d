"""How processes start: one engine a kind of cluster, all behind one protocol."""
