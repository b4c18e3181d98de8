"""This machine's limits, and what the system reaches beside them."""
