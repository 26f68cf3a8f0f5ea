"""Errors of the Docker engine and of networks, with a text of one line."""


class EngineError(RuntimeError):
    """The Docker engine of this machine does not answer, or did not do what was asked."""


class NetworkError(EngineError):
    """A network could not be started, found or reached."""
