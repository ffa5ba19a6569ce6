"""Errors of what statestore runs on: the operating system and the version of Spark."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, text


class OperatingSystemError(StateStoreError):
    """The operating system is one that statestore does not run on."""

    system: str
    message: str = text(
        "statestore runs on Linux and, for development, on macOS, and not on {system}: use WSL 2 or a container there"
    )


class SparkVersionError(StateStoreError):
    """The version of Spark that is installed is older than what was asked of it needs."""

    what: str
    needed: str
    found: str
    message: str = text("{what} needs Spark {needed} or newer, and pyspark {found} is installed: install a newer one")
