"""A process and its keeper: parking after a lease, and hand-over before one."""
