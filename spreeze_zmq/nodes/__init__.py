"""Other machines of a run: the head, which the launcher holds, lends names and decides; a node obeys."""
