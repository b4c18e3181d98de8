"""The display of a live run: redrawn in a terminal, plain greppable lines elsewhere."""
