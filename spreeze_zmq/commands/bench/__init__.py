"""Measures this machine's limits and the system's rates beside them, for ``spreeze bench``."""
