"""A run on disk and in the broker: folder, checkpoints, record, account of samples, evaluation."""
