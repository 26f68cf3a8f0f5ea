"""What the federated learning methods of this project share. Knows no method by name."""

__version__ = "0.1.0"
