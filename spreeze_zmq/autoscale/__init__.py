"""Worker counts, environments, batch size and cores, decided from measured rates."""
