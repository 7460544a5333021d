"""The keeper process that supervises one lease on one node, and the files it writes."""
