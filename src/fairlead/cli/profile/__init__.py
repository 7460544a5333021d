"""``fairlead profile``: the speed of a program on each accelerator."""
