"""What runs at a node: partial functions, the node that they see, and local training."""
