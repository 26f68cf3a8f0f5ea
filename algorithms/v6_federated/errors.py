"""The errors whose text may leave a node."""


class SafeError(ValueError):
    """Something is wrong with a request or its outcome; the text holds no value of a row."""
