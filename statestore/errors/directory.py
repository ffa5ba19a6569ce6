"""Errors of directories with state that are read from outside of a query."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, field, text


class StateDirectoryError(StateStoreError):
    """The directory or location at `path` can't be read or changed as asked; it was left as it was."""

    path: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("{path} {problem}")


class DirectoryInUseError(StateDirectoryError):
    """A running application, or another command, holds `lock`, a file at `path`."""

    lock: str
    problem: str = text(
        "is in use: an application or command that runs holds {lock}. Stop it, or wait, and run this again"
    )


class DirectoryDamagedError(StateDirectoryError):
    """Files at `path` are missing, cut or damaged, as `cause` says."""

    cause: str
    problem: str = text(
        "is damaged, or was copied while it was in use, or in part ({cause}). Copy all of it again while nothing "
        "runs on it; or have the store restored from its changelog"
    )


class DirectoryNotAccessibleError(StateDirectoryError):
    """The operating system refuses access to something at `path`, or has no room for it."""

    cause: str
    remedy: str = "Run this as the user that the application runs as"
    problem: str = text("can't be accessed ({cause}). {remedy}")
