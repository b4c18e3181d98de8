"""A run as data: its roles and channels, the resolved plan, and the types of its status."""
