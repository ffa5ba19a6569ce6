"""Clusters of real processes for tests: Spark's standalone master and workers, and applications that run on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyspark
import pytest

from statestore.testing.jars import SHORT_LIVED_JVM
from statestore.testing.kafka_broker import free_ports
from tests.support.clusters.faults import DISK_VARIABLE, Fault
from tests.support.clusters.jobs import JobResult, OrderJob
from tests.support.clusters.processes import NotInTimeError, ProcessSession, Started, wait_until

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 90
JOB_TIMEOUT_S: Final = 240
_LOG_TAIL_LINES: Final = 40
_EXECUTOR_LOGS: Final = 4
_SUPPORT: Final = Path(__file__).parent
_JVM_OPTIONS: Final = " ".join(SHORT_LIVED_JVM)
_SETTINGS: Final = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _JVM_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _JVM_OPTIONS,
    "spark.python.daemon.module": "statestore.spark.python_daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these few rows do
    # A task goes to whoever is free: shards move.
    "spark.locality.wait": "0",
    # What a killed executor has shuffled is given up after a second, not after 15, and computed again.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    # An executor that does not answer is given up after ten seconds, not after two minutes.
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
}


ONE_OF_ALL_KILLS: Final = pytest.mark.skipif(os.environ.get("KILLS") != "all", reason="make kills runs it")
"""What takes minutes, and is much like what make test runs."""


class ClusterFailure(AssertionError):
    """A cluster or an application that did not do what was asked, with the ends of its logs."""


def make_spark_home(directory: Path) -> Path:
    """Make a Spark installation of pyspark's parts, so that what Spark writes beside them comes to `directory`."""
    directory.mkdir(parents=True)
    for part in ("bin", "jars"):
        (directory / part).symlink_to(Path(pyspark.__file__).parent / part)
    return directory


def cluster_environment(spark_home: Path, **more: str) -> dict[str, str]:
    """Return the environment in which Spark's processes find Java, Python, the package and the tests' helpers."""
    return {
        **os.environ,
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **more,
    }


class StandaloneCluster(Started):
    """Spark's standalone master and workers, each a process of its own, and each worker with a disk of its own."""

    def __init__(self, home: Path, cores: int) -> None:
        super().__init__()
        self.home = home
        self._cores = cores
        self._port, self._ui_port = free_ports(2)
        self.url = f"spark://{HOST}:{self._port}"
        self.spark_home = make_spark_home(home / "spark")
        self.workers: list[ProcessSession] = []

    def _start(self) -> None:
        self._daemon("master.Master", "--host", HOST, "--port", str(self._port), "--webui-port", str(self._ui_port))
        self._wait_for(lambda: self._state() is not None, "the master does not answer")

    def have_workers(self, count: int) -> None:
        """Start as many workers as there are too few, and wait until the master counts on all."""
        for _ in range(count - sum(worker.runs for worker in self.workers)):
            self._start_worker()
        self._wait_for(lambda: self._alive_workers() == count, f"the master does not count on {count} workers")

    def _start_worker(self) -> None:
        name = f"worker-{len(self.workers)}"
        worker = self._daemon(
            "worker.Worker",
            *("--host", HOST, "--webui-port", "0", "--cores", str(self._cores), "--memory", "2g"),
            *("--work-dir", str(self.home / name), self.url),
            disk=self.home / f"{name}-disk",
        )
        self.workers.append(worker)

    def _alive_workers(self) -> int:
        state = self._state() or {"workers": []}
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def logs(self) -> list[Path]:
        """Return the logs of the daemons and of all executors there have been."""
        return sorted([*self.home.glob("*.log"), *self.home.glob("worker-*/*/*/stderr")])

    def _daemon(self, kind: str, *arguments: str, disk: Path | None = None) -> ProcessSession:
        command = [str(self.spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        environment = cluster_environment(
            self.spark_home,
            SPARK_DAEMON_MEMORY="256m",
            SPARK_DAEMON_JAVA_OPTS=_JVM_OPTIONS,
            SPARK_MASTER_OPTS="-Dspark.master.rest.enabled=false",  # its port is a fixed one
            **({} if disk is None else {DISK_VARIABLE: str(disk)}),
        )
        log = self.home / f"{kind.partition('.')[0]}-{len(self.workers)}.log"
        daemon = ProcessSession(command, log, environment)
        self._resources.callback(daemon.kill)
        return daemon

    def _wait_for(self, condition: Callable[[], Any], problem: str) -> None:
        try:
            wait_until(condition, problem, START_TIMEOUT_S)
        except NotInTimeError as failure:
            raise ClusterFailure(f"{failure}\n{log_tails(self.logs())}") from None

    def _state(self) -> dict[str, Any] | None:
        """Return what the master says about itself, None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._ui_port}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, HTTPException, ValueError):
            # Nobody is there yet, or somebody else: even this request itself, if its own port happens to be the one.
            return None


class Application:
    """A driver process with its executors, which runs jobs one after the other."""

    def __init__(
        self, home: Path, master: str, spark_home: Path, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        home.mkdir(parents=True)
        self._spark_home = spark_home
        environment = cluster_environment(spark_home)
        settings = {**_SETTINGS, "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"], **settings}
        script = str(_SUPPORT / "application.py")
        self.processes = ProcessSession(
            [sys.executable, script, master, json.dumps(settings)],
            home / "driver.log",
            environment,
            stdin=subprocess.PIPE,
            cwd=home,
        )

    def start(self, job: OrderJob) -> None:
        """Have the job run, after those that were started before."""
        (job.home / "result.json").unlink(missing_ok=True)
        self.processes.tell(job.to_json())

    def result(self, job: OrderJob) -> JobResult:
        """Wait until the job has ended and return what came of it. Raises ClusterFailure."""
        path = job.home / "result.json"
        self.wait_until(path.exists, "the query does not end")
        result = json.loads(path.read_text())
        if "failure" in result:
            raise ClusterFailure(f"the query failed: {result['failure']}\n{log_tails(self.logs())}")
        return JobResult(**result)

    def run(self, job: OrderJob) -> JobResult:
        """Start the job and return what came of it."""
        self.start(job)
        return self.result(job)

    def run_until_struck(self, job: OrderJob, fault: Fault) -> dict[str, Any]:
        """Start the job, wait until the fault has struck, and return where and when. Raises ClusterFailure."""
        self.start(job)
        self.wait_until(fault.struck, f"the query does not come to {fault.moment} in batch {fault.first_batch}")
        struck = fault.struck()
        assert struck is not None
        return struck

    def wait_until(self, condition: Callable[[], Any], problem: str) -> None:
        """Return as soon as the condition holds. Raises ClusterFailure if it does not, or the driver has ended."""

        def holds_or_over() -> bool:
            return bool(condition()) or not self.processes.runs

        try:
            wait_until(holds_or_over, problem, JOB_TIMEOUT_S)
            if not condition():
                raise NotInTimeError(f"{problem}: the driver has ended")
        except NotInTimeError as failure:
            # It may hang for ever: nobody else should have to wait for it.
            self.processes.kill()
            raise ClusterFailure(f"{failure}\n{log_tails(self.logs())}") from None

    def logs(self) -> list[Path]:
        """Return the logs of the driver and of the executors that have last written one."""
        executors = sorted(self._spark_home.parent.rglob("stderr"), key=lambda log: log.stat().st_mtime)
        return [self.processes.log, *executors[-_EXECUTOR_LOGS:]]


class SharedApplication:
    """An application that tests share; who has killed it gets a new one."""

    def __init__(self, home: Path, master: str, spark_home: Path) -> None:
        self._home = home
        self._master = master
        self._spark_home = spark_home
        self._made = 0
        self._application: Application | None = None

    def running(self) -> Application:
        """Return the application, a new one if none runs."""
        if self._application is None or not self._application.processes.runs:
            self.stop()
            home = self._home / f"application-{self._made}"
            self._application = Application(home, self._master, self._spark_home)
            self._made += 1
        return self._application

    def stop(self) -> None:
        """End the application and all its processes."""
        if self._application is not None:
            self._application.processes.finish()


def log_tails(logs: Iterable[Path]) -> str:
    """Return the ends of the logs, each under its name."""
    return "\n".join(
        f"== {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]) for path in logs
    )
