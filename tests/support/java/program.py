"""Compiles the Java programs of tests/java and runs them, on the jars of Kafka Streams or Connect."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from statestore.errors import HarnessError
from statestore.testing.jars import SHORT_LIVED_JVM, java_command, kafka_streams_jars

PROGRAMS = Path(__file__).parents[2] / "java"

# What is longest by far, the scenarios of the test driver, takes half a minute.
TIMEOUT_S = 300


class JavaCompilerMissingError(HarnessError):
    """This Java runs programs, but can't compile them."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"{command} has no module jdk.compiler, so it is a runtime only: install a JDK, version 17 or 21 (Debian: "
            "openjdk-17-jdk-headless), and let JAVA_HOME name it, or put it on PATH"
        )
        self.command = command


class JavaProgramError(HarnessError):
    """A program as a whole failed, not what it was asked for; `output` is what it said on stderr."""

    def __init__(self, program: Path, status: int, *, output: str) -> None:
        super().__init__(f"{program.name} ended with status {status}:\n{output}")
        self.program = program
        self.status = status
        self.output = output


def run_java_program(program: Path, *arguments: str, lines: str, jars: Callable[[], Path] = kafka_streams_jars) -> str:
    """Return what `program` prints on standard output when it is given `lines` on standard input.

    Its temporary directory goes with it, whatever happens: Kafka's native libraries are in it, and state directories.

    Raises JavaNotFoundError, JavaCompilerMissingError, JarsUnavailableError, or JavaProgramError.
    """
    java = java_command()
    class_path = os.pathsep.join(map(str, sorted(jars().glob("*.jar"))))
    classes = _compiled(program, java, class_path)
    with tempfile.TemporaryDirectory() as scratch:
        command = [java, f"-Djava.io.tmpdir={scratch}", *SHORT_LIVED_JVM, "-cp", f"{classes}{os.pathsep}{class_path}"]
        return _run(program, [*command, program.stem, *arguments], java=java, lines=lines)


@cache  # more than ten tests of a file run the same program
def _compiled(program: Path, java: str, class_path: str) -> str:
    """Return the directory with the classes of `program`, which goes with this process."""
    classes = tempfile.TemporaryDirectory()
    atexit.register(classes.cleanup)
    # What the program uses of its neighbours is found and compiled with it.
    compiler = [java, *SHORT_LIVED_JVM, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-nowarn"]
    compiler += ["-encoding", "UTF-8", "-cp", class_path, "-sourcepath", str(PROGRAMS), "-d", classes.name]
    _run(program, [*compiler, str(program)], java=java)
    return classes.name


def _run(program: Path, command: list[str], *, java: str, lines: str = "") -> str:
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        if "required by jdk.compiler" in done.stdout or "Module jdk.compiler not found" in done.stdout:
            raise JavaCompilerMissingError(java)
        raise JavaProgramError(program, done.returncode, output=done.stderr.strip())
    return done.stdout
