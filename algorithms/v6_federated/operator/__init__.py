"""What the operator of a node runs, on a laptop or from an image: ``python -m v6_federated``."""
