"""What the broker knows of a run, counts, judges and decides."""
