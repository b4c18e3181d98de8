"""Starts, supervises and ends the processes of one run."""
