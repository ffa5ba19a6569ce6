"""Asks the real Kafka Streams what is in a task's directory, through tests/java/ReadTaskDirectory.java."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statestore.errors import HarnessError
from statestore.testing.jars import java_command, kafka_streams_jars

PROGRAM = Path(__file__).parents[1] / "java" / "ReadTaskDirectory.java"

# Reading all golden directories takes seconds.
TIMEOUT_S = 300


class JavaCompilerMissingError(HarnessError):
    """This Java runs programs, but can't start one from its source."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"{command} has no module jdk.compiler, so it is a runtime only: install a JDK, version 17 or 21 (Debian: "
            "openjdk-17-jdk-headless), and let JAVA_HOME name it, or put it on PATH"
        )
        self.command = command


class JavaReaderError(HarnessError):
    """The program as a whole failed, not the opening of a store; `output` is what it said on stderr."""

    def __init__(self, status: int, *, output: str) -> None:
        super().__init__(f"{PROGRAM.name} ended with status {status}:\n{output}")
        self.status = status
        self.output = output


@dataclass(frozen=True)
class ReadRequest:
    """A store to read. `kind` and the names of `options` are those of ReadTaskDirectory.java, as are the defaults.

    Options are applicationId, retentionMs, windowSizeMs, segmentIntervalMs and historyRetentionMs. The kind is one of
    kv, ts-kv, headers-kv, window, window-dup, ts-window, headers-window, headers-window-dup, session, headers-session
    and versioned.
    """

    task_directory: Path
    kind: str
    store: str = "store"
    options: Mapping[str, str | int] = field(default_factory=dict)

    def line(self) -> str:
        """The request as a line of the program's input. Raises ValueError if it would not be one line of words."""
        words = [str(self.task_directory.absolute()), self.kind, self.store]
        words += [f"{name}={value}" for name, value in self.options.items()]
        for word in words:
            if not word or not word.isprintable():
                raise ValueError(f"can't be sent to {PROGRAM.name}: {word!r}")
        return "\t".join(words) + "\n"


def read_with_kafka_streams(requests: Sequence[ReadRequest]) -> list[dict[str, Any]]:
    """What each store holds, in the shape of logical.json, or with the key "error" if it does not open.

    "error" is a list: the exception and its causes, each as class name, colon, message. The directories are not
    changed. One Java virtual machine reads them all: starting it costs two seconds, and a store some milliseconds.

    Raises JavaNotFoundError, JavaCompilerMissingError, JarsUnavailableError, or JavaReaderError for a request that
    makes no sense, such as an unknown kind or a directory that is not there.
    """
    java = java_command()
    lines = "".join(request.line() for request in requests)
    # Kafka's native libraries and the copies of the directories go with it, whatever happens.
    with tempfile.TemporaryDirectory() as scratch:
        command = [java, f"-Djava.io.tmpdir={scratch}", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_streams_jars()}/*"]
        command += [str(PROGRAM), "--batch"]
        done = subprocess.run(
            command, input=lines, capture_output=True, encoding="utf-8", timeout=TIMEOUT_S, check=False
        )
    if done.returncode != 0:
        if "jdk.compiler" in done.stderr:
            raise JavaCompilerMissingError(java)
        raise JavaReaderError(done.returncode, output=done.stderr.strip())
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(requests):
        raise JavaReaderError(0, output=f"{len(answers)} answers to {len(requests)} requests\n{done.stderr.strip()}")
    return answers
