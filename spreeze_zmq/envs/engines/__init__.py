"""Batches in one process: native tasks, EnvPool's environments, and a loop over any Gymnasium environment."""
