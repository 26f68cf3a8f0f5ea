"""Rows of a node, preprocessing steps, and statistics of the rows of all nodes."""
