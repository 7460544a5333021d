"""The scene of `fairlead demo`: real training processes on emulated devices."""
