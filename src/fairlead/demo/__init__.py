"""A small cluster at work: real training processes on emulated devices, for `fairlead demo`."""
