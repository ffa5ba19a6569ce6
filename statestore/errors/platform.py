"""Errors of what statestore runs on: the operating system, the version of Spark and what its server has."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, text


class PlatformError(StateStoreError):
    """What statestore is to run on lacks something: the system, pyspark or the Spark Connect server."""


class OperatingSystemError(PlatformError):
    """The operating system is one that statestore does not run on."""

    system: str
    message: str = text(
        "statestore runs on Linux and, for development, on macOS, and not on {system}: use WSL 2 or a container there"
    )


class SparkVersionError(PlatformError):
    """The version of Spark that is installed is older than what was asked of it needs."""

    what: str
    needed: str
    found: str
    message: str = text("{what} needs Spark {needed} or newer, and pyspark {found} is installed: install a newer one")


class ConnectServerError(PlatformError):
    """The Python workers of a Spark Connect server lack what its client has."""

    lacks: str
    needed: str
    message: str = text(
        "the Python workers of the Spark Connect server lack {lacks}: install statestore {needed}, with its "
        "dependencies, where the server's executors run, and start the server anew"
    )
