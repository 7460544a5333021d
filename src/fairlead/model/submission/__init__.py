"""Submitted jobs: the one declaration of their fields."""
