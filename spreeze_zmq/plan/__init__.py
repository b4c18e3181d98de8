"""What a run is: roles and channels, the resolved plan, typed options, and the fields of its status."""
