"""Batches whose environments run in worker processes, over shared memory and Unix sockets."""
