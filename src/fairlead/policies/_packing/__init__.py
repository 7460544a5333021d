"""Units, shared by the policies over packed pairs and placements of gangs."""
