"""Decides the number of samplers, the batch size, threads and cores, from measured rates."""
