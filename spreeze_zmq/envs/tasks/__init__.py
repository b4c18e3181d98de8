"""Native tasks: environments whose whole batch steps as array arithmetic, with Gymnasium's numbers."""
