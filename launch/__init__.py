"""Ready topologies, each runnable as it stands: ``spreeze-launch pendulum``."""
