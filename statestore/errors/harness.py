"""Errors of what tests and demos run beside Spark."""

from __future__ import annotations

from statestore.errors.root import StateStoreError


class HarnessError(StateStoreError):
    """What tests and demos run beside Spark can't be had."""


class JavaNotFoundError(HarnessError):
    """Neither JAVA_HOME nor PATH leads to a Java."""

    def __init__(self) -> None:
        super().__init__("no Java: install version 17 or 21 and let JAVA_HOME name it, or put it on PATH")


class JarsUnavailableError(HarnessError):
    """The Java registry did not hand out the jars of `jar_set`; nothing was kept of those it did."""

    def __init__(self, jar_set: str, *, output: str) -> None:
        super().__init__(
            f"the jars of {jar_set} could not be resolved. They come from the Java registry, so check the network; a "
            f"complete set can also be copied from another machine into $STATESTORE_JARS. Ivy said last:\n{output}"
        )
        self.jar_set = jar_set
        self.output = output


class KafkaBrokerError(HarnessError):
    """The broker did not start, or refused a command; `output` is the end of what it said."""

    def __init__(self, problem: str, *, output: str) -> None:
        super().__init__(f"Kafka broker: {problem}\n{output}")
        self.problem = problem
        self.output = output
