"""Errors of directories with state that are read from outside of a query."""

from __future__ import annotations

from statestore.errors.root import StateStoreError


class StateDirectoryError(StateStoreError):
    """The directory or location at `path` can't be read or changed as asked; it was left as it was."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path} {message}")
        self.path = path


class DirectoryInUseError(StateDirectoryError):
    """A running application, or another command, holds `lock`, a file at `path`."""

    def __init__(self, path: str, *, lock: str) -> None:
        super().__init__(
            path,
            f"is in use: an application or command that runs holds {lock}. Stop it, or wait, and run this again",
        )
        self.lock = lock


class DirectoryDamagedError(StateDirectoryError):
    """Files at `path` are missing, cut or damaged, as `cause` says."""

    def __init__(self, path: str, *, cause: str) -> None:
        super().__init__(
            path,
            f"is damaged, or was copied while it was in use, or in part ({cause}). Copy all of it again while nothing "
            "runs on it; or have the store restored from its changelog",
        )
        self.cause = cause


class DirectoryNotAccessibleError(StateDirectoryError):
    """The operating system refuses access to something at `path`, or has no room for it."""

    def __init__(
        self, path: str, *, cause: str, remedy: str = "Run this as the user that the application runs as"
    ) -> None:
        super().__init__(path, f"can't be accessed ({cause}). {remedy}")
        self.cause = cause
        self.remedy = remedy
