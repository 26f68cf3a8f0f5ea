"""What a node's operator allows."""
