"""Experiments on mock nodes: data, how they are dealt to nodes, and a mock network."""
