"""Routes and messages of simulations."""
