"""A schema registry in a process of its own: Apicurio's, which speaks Confluent's protocol and keeps all in memory."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from statestore.testing.jars import SHORT_LIVED_JVM, java_command, registry_archive
from statestore.testing.kafka_broker import free_ports
from tests.support.clusters.processes import ProcessSession, wait_until

_PATH: Final = "/apis/ccompat/v7"


@contextmanager
def running_registry(home: Path) -> Iterator[str]:
    """Start a registry below `home`, give its address, and stop it at the end, or with this process."""
    with tarfile.open(registry_archive()) as archive:
        archive.extractall(home, filter="data")
    (jar,) = home.glob("*-runner.jar")
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}{_PATH}"
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command = [java_command(), *SHORT_LIVED_JVM, "-Xmx512m", *settings, "-jar", str(jar)]
    process = ProcessSession(command, home / "log", dict(os.environ))

    def answers() -> bool:
        assert process.runs, (home / "log").read_text()[-2000:]
        with suppress(URLError), urlopen(f"{address}/subjects", timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    try:
        wait_until(answers, "the registry does not answer", timeout_s=120)
        yield address
    finally:
        process.kill()
