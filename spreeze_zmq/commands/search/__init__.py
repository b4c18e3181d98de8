"""``spreeze search``: which settings learn best."""
