"""What runs where vantage6 starts a method's central function: the federation, and what it needs."""
