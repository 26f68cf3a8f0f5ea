"""One hospital's rows, what a partial function may read of them, and local training."""
