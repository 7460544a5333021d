"""Nodes of a live cluster: inventory, cordon, drain, loss and return."""
