"""Methods that others use, for comparison with the Gaussian process."""
