"""What the operating system says of a local disk, as errors that tell the operator which disk it is."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Final

from statestore.errors import LocalDirectoryError
from statestore.errors.state import LocalDiskFullError

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def local_disk_errors(store: str, path: str | PathLike[str]) -> Iterator[None]:
    """Raise an OSError at the local `path` as LocalDiskFullError or LocalDirectoryError; `store` says whose it is."""
    try:
        yield
    except OSError as cause:
        if cause.errno in _NO_SPACE:
            raise LocalDiskFullError(store, path=fspath(path), cause=str(cause)) from cause
        raise LocalDirectoryError(fspath(path), cause=str(cause)) from cause
