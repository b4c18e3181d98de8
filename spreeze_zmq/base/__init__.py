"""What everybody says: errors, the rollout, options, trust, and facts of this machine."""
