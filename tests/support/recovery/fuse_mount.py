"""Mounts a directory, by FUSE, as a mount that refuses to append, to write elsewhere than at the end, and to lock.

python tests/support/recovery/fuse_mount.py DIRECTORY MOUNTED [no-rename]
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def mounted(home: Path, *options: str) -> Iterator[tuple[Path, Path]]:
    """Mount a new directory, and unmount it at the end; yield the directory and where it is mounted.

    A test is skipped where FUSE is not installed.
    """
    if shutil.which("fusermount3") is None or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE is not installed: see the Makefile")
    directory, mount = home / "directory", home / "mount"
    directory.mkdir()
    mount.mkdir()
    command = [sys.executable, __file__, str(directory), str(mount), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "mounted\n"
            yield directory, mount
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=True)


def _serve(directory: str, mount: str, *options: str) -> None:
    from mfusepy import FUSE, FuseOSError, Operations  # which fails where FUSE is not installed

    class Mount(Operations):  # type: ignore[misc]
        use_ns = True

        def init(self, path: str) -> None:
            print("mounted", flush=True)

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            found = os.lstat(directory + path)
            times = {f"st_{kind}time": getattr(found, f"st_{kind}time_ns") for kind in "mac"}
            return times | {
                f"st_{name}": getattr(found, f"st_{name}") for name in ("mode", "size", "nlink", "uid", "gid")
            }

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *os.listdir(directory + path)]

        def mkdir(self, path: str, mode: int) -> None:
            os.mkdir(directory + path, mode)

        def rmdir(self, path: str) -> None:
            os.rmdir(directory + path)

        def unlink(self, path: str) -> None:
            os.unlink(directory + path)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            return os.open(directory + path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

        def open(self, path: str, flags: int) -> int:
            if flags & os.O_APPEND:
                self.refuse()
            return os.open(directory + path, flags)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            if offset != os.fstat(fh).st_size:
                self.refuse()
            return os.pwrite(fh, data, offset)

        def release(self, path: str, fh: int) -> None:
            os.close(fh)

        def rename(self, old: str, new: str) -> None:
            if "no-rename" in options:
                self.refuse()
            os.rename(directory + old, directory + new)

        def refuse(self, *_: Any) -> None:
            raise FuseOSError(errno.EOPNOTSUPP)

        truncate = lock = flock = refuse

    FUSE(Mount(), mount, foreground=True, nothreads=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
