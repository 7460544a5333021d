"""What the API answers to, one module for each thing that it is about."""
