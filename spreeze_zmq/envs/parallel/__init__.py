"""Batches whose environments run in worker processes, over shared memory and sockets of the kernel."""
