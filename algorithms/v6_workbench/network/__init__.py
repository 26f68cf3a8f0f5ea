"""Real vantage6 networks: one on this machine, tasks on any server, images, and store entries."""
