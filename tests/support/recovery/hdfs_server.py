"""HDFS itself: a name node and data nodes in a process of their own, with tests/java/RunHdfs.java."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statestore.testing.jars import SHORT_LIVED_JVM, hdfs_jars, java_command
from tests.support.java.program import PROGRAMS


class Hdfs:
    """The cluster as its clients see it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = f"127.0.0.1:{self._answer()}"

    def uri(self, path: str) -> str:
        """Return the URI of a path."""
        return f"hdfs://{self.address}/{path}"

    def do(self, what: str) -> None:
        """Have done what RunHdfs knows by these words."""
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        while self._answer() != "done":  # Hadoop logs there, too
            pass

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the cluster died"
        return line.strip()


@contextmanager
def running_hdfs(home: Path, data_nodes: int) -> Iterator[Hdfs]:
    """Start a cluster below `home`, and stop it at the end, or with this process."""
    jars = hdfs_jars()
    if not jars:
        pytest.skip("HDFS is tried with the Spark that has its version of Hadoop")
    command = [java_command(), *SHORT_LIVED_JVM, "-cp", os.pathsep.join(map(str, jars)), str(PROGRAMS / "RunHdfs.java")]
    with subprocess.Popen(
        [*command, str(home), str(data_nodes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Hdfs(process)
        finally:
            process.kill()
