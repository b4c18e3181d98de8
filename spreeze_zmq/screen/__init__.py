"""The run in a terminal and on a page."""
