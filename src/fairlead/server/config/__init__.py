"""Server settings: sources, validation, and the scheduling configuration made from them."""
