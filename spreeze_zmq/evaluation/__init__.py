"""What is done with a policy: play, score, film, export."""
