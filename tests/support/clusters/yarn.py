"""YARN itself: a resource manager and a node manager in a process of their own, with tests/java/RunYarn.java."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pyspark
import pytest

from statestore.testing.jars import SHORT_LIVED_JVM, java_command, yarn_jars
from tests.support.clusters.clusters import HOST, START_TIMEOUT_S, ClusterFailure, log_tails, make_spark_home
from tests.support.clusters.processes import NotInTimeError, ProcessSession, Started, wait_until
from tests.support.java.program import PROGRAMS

_PYSPARK: Final = Path(pyspark.__file__).parent


class YarnCluster(Started):
    """`settings` is what HADOOP_CONF_DIR must be for an application to find it."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.settings = home / "yarn"
        self.spark_home = make_spark_home(home / "spark")
        (self.spark_home / "python").symlink_to(_PYSPARK / "python")  # which Spark sends to containers

    def _start(self) -> None:
        jars = yarn_jars()
        if not jars:
            pytest.skip("YARN is tried with the Spark that has its version of Hadoop")
        self.settings.mkdir()
        command = [java_command(), *SHORT_LIVED_JVM, "-cp", os.pathsep.join(map(str, jars))]
        log = self.settings / "log"
        process = ProcessSession(
            [*command, str(PROGRAMS / "RunYarn.java"), str(self.settings)],
            log,
            {**os.environ},
            stdin=subprocess.PIPE,
            cwd=self.settings,
        )
        self._resources.callback(process.finish)
        try:
            wait_until((self.settings / "yarn-site.xml").exists, "YARN does not start", START_TIMEOUT_S)
        except NotInTimeError as failure:
            raise ClusterFailure(f"{failure}\n{log_tails([log])}") from None

    @property
    def spark_settings(self) -> dict[str, str]:
        """What an application is to set for two executors."""
        return {
            "spark.driver.host": HOST,
            "spark.executor.instances": "2",
            "spark.hadoop.fs.defaultFS": "file:///",
            "spark.yarn.am.memory": "512m",
            "spark.yarn.jars": f"local:{_PYSPARK}/jars/*",
            "spark.yarn.stagingDir": str(self.settings),
        }
