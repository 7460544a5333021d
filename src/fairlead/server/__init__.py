"""How others reach a live scheduler: REST, events, metrics, and who may do what."""
