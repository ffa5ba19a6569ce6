"""A server of Spark Connect, and a client of it, each a process of its own that has no directory of the other's.

Paths below THEIRS lead each process to its own working directory: the server's is `ConnectServer.home`, the client's
`ConnectClient.home`, in which nothing may appear. Sources and checkpoints are there, which the JVM opens. Spark has the
Python workers of each session run somewhere else: a state's location is on S3, which only the server knows how to
reach. Temporary directories, where local copies are, are below the homes as well.

    with ConnectServer(directory) as server, ConnectClient(server.remote, directory / "client") as client:
        assert client.call(count_of, str(THEIRS / "input")) == 3
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle

from statestore.testing.jars import SHORT_LIVED_JVM, connector_jars
from tests.support.clusters.clusters import ClusterFailure, cluster_environment, log_tails, make_spark_home
from tests.support.clusters.processes import ProcessSession, Started, wait_until

THEIRS: Final = Path("/proc/self/cwd")
"""An absolute path of the working directory of whoever opens it: in the server's JVM, the server's home."""
_HOST: Final = "127.0.0.1"
_START_TIMEOUT_S: Final = 90
_STARTED: Final = re.compile(r"Spark Connect server started at: [^\n]*?:(\d+)")
_SETTINGS: Final = {
    "spark.connect.grpc.binding.address": _HOST,
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.extraJavaOptions": " ".join(SHORT_LIVED_JVM),
    "spark.driver.host": _HOST,
    "spark.driver.memory": "768m",
    "spark.python.daemon.module": "statestore.spark.python_daemon",
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these few rows do
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
}


class ClientFailure(AssertionError):
    """What a function raised that the client was to call, with its traceback there."""


class _Process(Started):
    """A process with a directory of its own."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        home.mkdir(parents=True)
        self.home = home

    def _run(
        self, command: list[str], log: Path, environment: dict[str, str], pass_fds: tuple[int, ...] = ()
    ) -> ProcessSession:
        process = ProcessSession(command, log, environment, cwd=self.home, stdin=subprocess.DEVNULL, pass_fds=pass_fds)
        self._resources.callback(process.kill)
        return process


class ConnectServer(_Process):
    """A server with two cores. `environment` is what only it is told: endpoints and keys of its state's location."""

    def __init__(self, directory: Path, environment: dict[str, str] | None = None) -> None:
        super().__init__(directory / "server")
        self.log = directory / "server.log"
        self.remote = ""
        self._spark_home = directory / "spark"
        self._environment = environment or {}

    def _start(self) -> None:
        spark_home = make_spark_home(self._spark_home)
        settings = {**_SETTINGS, "spark.jars": ",".join(map(str, connector_jars()))}
        command = [
            str(spark_home / "bin" / "spark-submit"),
            "--master",
            "local[2,2]",
        ]  # a failed task is tried once more
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        temporary = self.home / "tmp"
        temporary.mkdir()
        own = {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary), **self._environment}
        process = self._run(command, self.log, cluster_environment(spark_home, **own))
        wait_until(lambda: self._port() or not process.runs, "the server does not start", _START_TIMEOUT_S)
        if self._port() is None:
            raise ClusterFailure(f"the server has ended\n{log_tails([self.log])}")
        self.remote = f"sc://{_HOST}:{self._port()}"

    def _port(self) -> str | None:
        started = _STARTED.search(self.log.read_text(errors="replace"))
        return started and started[1]


class ConnectClient(_Process):
    """A process with a session of Connect and no Java, which calls what it is handed."""

    def __init__(self, remote: str, home: Path, python: str = sys.executable) -> None:
        super().__init__(home / "cwd")
        self.log = home / "client.log"
        self._remote = remote
        self._python = python

    def _start(self) -> None:
        without = ("AWS_", "JAVA_HOME", "SPARK_HOME")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(without)}
        environment["TMPDIR"] = str(self.home)
        environment["SPARK_REMOTE"] = self._remote
        # What is installed is the client's own: it may have another Python.
        installed = (sys.prefix, sys.base_prefix)
        environment["PYTHONPATH"] = os.pathsep.join(
            path for path in sys.path if path and not path.startswith(installed)
        )
        self._connection, theirs = Pipe()
        self._resources.callback(self._connection.close)
        program = [self._python, "-m", "tests.support.clusters.connect", str(theirs.fileno())]
        with theirs:
            self._run(program, self.log, environment, pass_fds=(theirs.fileno(),))

    def call(self, function: Any, *arguments: Any) -> Any:
        """Return what `function(spark, *arguments)` does there. Raises ClientFailure, and if files appear there."""
        try:
            self._connection.send_bytes(cloudpickle.dumps((function, arguments)))
            result, failure = cloudpickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as cause:
            raise ClusterFailure(f"the client has ended\n{log_tails([self.log])}") from cause
        if failure is not None:
            raise ClientFailure(failure)
        here = sorted(path.name for path in self.home.iterdir())
        assert not here, f"the client has made {here} where it runs: that is for the server to do"
        return result


def _answer_calls(descriptor: str) -> None:
    from pyspark.sql import SparkSession

    with Connection(int(descriptor)) as connection:
        spark = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).getOrCreate()
        while True:
            try:
                call = connection.recv_bytes()
            except EOFError:
                break
            try:
                function, arguments = cloudpickle.loads(call)
                answer = (function(spark, *arguments), None)
            except BaseException:  # pytest's own failures are no Exceptions
                answer = (None, traceback.format_exc())
            connection.send_bytes(cloudpickle.dumps(answer))
        spark.stop()


if __name__ == "__main__":
    _answer_calls(sys.argv[1])
