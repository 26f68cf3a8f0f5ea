"""The commands, one a module: the record of its options, and what it does."""
