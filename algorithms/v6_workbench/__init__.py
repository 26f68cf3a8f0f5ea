"""The workbench: all that runs on a laptop, and in no image."""
