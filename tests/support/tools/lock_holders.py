"""Other processes that hold directories, as a running application does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPEN = """
import sys
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
try:
    database = RocksDBDatabase(sys.argv[1], [], compacting=False)
except Exception as error:
    print(type(error).__name__, flush=True)
    sys.exit(1)
print("held", flush=True)
sys.stdin.read()
database.close()
"""
_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "ab")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError as error:
    print(type(error).__name__, flush=True)
    sys.exit(1)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _held(program: str, path: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@contextmanager
def database_opened_elsewhere(path: Path) -> Iterator[str]:
    """Have another process open a database; hand out "held", or the name of the error that it got."""
    with _held(_OPEN, path) as said:
        yield said


@contextmanager
def file_locked_elsewhere(path: Path) -> Iterator[str]:
    """Have another process lock a file as Kafka Streams does, made if it is missing; hand out what came of it."""
    with _held(_LOCK, path) as said:
        yield said
