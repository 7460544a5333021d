"""Speeds that nobody has measured: first guesses, completion of tables, online learning.

Everything here is pure: numbers in, numbers out, the same for the same input.
"""
