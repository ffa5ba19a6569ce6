"""Errors of what tests and demos run beside Spark, or in its place."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, field, text


class HarnessError(StateStoreError):
    """What tests and demos run beside Spark can't be had."""


class JavaNotFoundError(HarnessError):
    """Neither JAVA_HOME nor PATH leads to a Java."""

    message: str = text("no Java: install version 17 or 21 and let JAVA_HOME name it, or put it on PATH")


class JarsUnavailableError(HarnessError):
    """The Java registry did not hand out the jars of `jar_set`; nothing was kept of those it did."""

    jar_set: str = field(kw_only=False)
    output: str
    message: str = text(
        "the jars of {jar_set} could not be resolved. They come from the Java registry, so check the network; a "
        "complete set can also be copied from another machine into $STATESTORE_JARS. Ivy said last:\n{output}"
    )


class JarChecksumError(HarnessError):
    """A jar is not the recorded one, is missing, or is too many; `expected` and `found` are SHA-256, or None."""

    jar: str = field(kw_only=False)
    jar_set: str
    directory: str
    expected: str | None
    found: str | None
    message: str = text(
        "{jar} of {jar_set} in {directory}: its recorded SHA-256 is {_expected}, found was {_found}. This release was "
        "not tested with it, so it is not run. If the directory is an old one, delete it: the set is resolved again. "
        "If the registry hands this jar out, find out why. After a change of version, record the new jars: "
        "python -m statestore.testing.jars --record"
    )

    @property
    def _expected(self) -> str:
        return self.expected or "none"

    @property
    def _found(self) -> str:
        return self.found or "no such jar"


class KafkaBrokerError(HarnessError):
    """The broker did not start, or refused a command; `output` is the end of what it said."""

    problem: str = field(kw_only=False)
    output: str
    message: str = text("Kafka broker: {problem}\n{output}")


class InjectedFaultError(HarnessError):
    """A fault of a fault plan struck."""


class QueryHungError(HarnessError):
    """A query under faults did not end in time."""

    timeout_s: int
    message: str = text("the query did not end within {timeout_s} s and was stopped")


class DriverError(StateStoreError):
    """The test driver can't do what it was asked; nothing was done."""


class DriverClosedError(DriverError):
    """The test driver was used after it was closed."""

    message: str = text("the test driver is closed; make a new one, with state_dir= if it is to go on with the state")


class DriverFailedError(DriverError):
    """The test driver was used after what it was running had failed."""

    failure: str = field(kw_only=False)
    message: str = text(
        "the topology stopped with the error: {failure}. Nothing of the record that it failed on was committed. "
        "Call restart() before any further input, with the mended topology if it is another one"
    )


class NoRecordError(DriverError):
    """An output topic has no record to read: nothing was ever written to it, or all of it was read."""

    topic: str = field(kw_only=False)
    problem: str
    message: str = text("{problem}: {topic}")


class IncompleteChangelogError(DriverError):
    """A store was to be restored from a changelog that does not hold all of it; nothing was changed."""

    store: str = field(kw_only=False)
    problem: str
    message: str = text(
        "store {store!r} can't be restored from its changelog: {problem}. Give the driver the whole changelog "
        "with changelogs="
    )
