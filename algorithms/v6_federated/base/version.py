"""The version of the package: the one place that holds it (``pyproject.toml`` reads it from here)."""

__version__ = "0.1.0"
