"""Asks the real Kafka Streams what is in a task's directory, through tests/java/ReadTaskDirectory.java."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.java.program import PROGRAMS, JavaCompilerMissingError, JavaProgramError, run_java_program

__all__ = ["JavaCompilerMissingError", "JavaReaderError", "ReadRequest", "read_with_kafka_streams"]

PROGRAM = PROGRAMS / "ReadTaskDirectory.java"

JavaReaderError = JavaProgramError


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
    said = run_java_program(PROGRAM, "--batch", lines="".join(request.line() for request in requests))
    answers = [json.loads(line) for line in said.splitlines()]
    if len(answers) != len(requests):
        raise JavaReaderError(PROGRAM, 0, output=f"{len(answers)} answers to {len(requests)} requests")
    return answers
