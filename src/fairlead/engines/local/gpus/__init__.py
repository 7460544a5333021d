"""The GPUs of this machine: their list, their names and their condition."""
