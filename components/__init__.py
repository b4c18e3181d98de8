"""The programs of the system, one folder each; the launcher starts them and nothing imports them."""
