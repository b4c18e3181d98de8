"""A run on disk and in the broker's books: folder, checkpoints, record, account of samples, evaluation."""
