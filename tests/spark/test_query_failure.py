"""What the driver is told of an error in a Python worker: the sentence first, and the fields with it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator

import pytest
from pyspark import TaskContext
from pyspark.util import handle_worker_exception

from statestore.errors import LocationInUseError, ProcessorError, StateStoreError, TopologyChangedError
from statestore.spark import error_of
from statestore.spark.query_failure import QueryFailure, sentence_first

PREAMBLE = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] An exception was "
FROM_WORKER = f"{PREAMBLE}thrown from the Python worker: "
BEHIND = " SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: ProcessorError: not this\n"


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A task of Spark's, as its worker sets it, and its variable as it was afterwards."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    TaskContext._setTaskContext(TaskContext())
    yield
    TaskContext._setTaskContext(None)


def sent(error: Exception) -> str:
    """What the driver says of an error that Spark's worker has met."""
    out = io.BytesIO()
    try:
        with sentence_first():
            raise error
    except Exception as crossing:
        handle_worker_exception(crossing, out)
    return FROM_WORKER + out.getvalue()[8:].decode() + BEHIND


def processor_error(message: str = "no such\ncustomer") -> ProcessorError:
    try:
        raise ValueError(message)
    except ValueError as cause:
        error = ProcessorError(node="total", topic="in", partition=0, offset=7, key_digest="81b6", cause=cause)
        error.__cause__ = cause
        return error


@pytest.mark.usefixtures("in_worker")
def test_the_sentence_comes_first_and_the_users_traceback_behind() -> None:
    first, marked, *behind = sent(processor_error()).splitlines()
    sentence = (
        "statestore.errors.run.ProcessorError: node 'total' failed on record in-0 at offset 7: ValueError: no such"
    )
    assert first.startswith(FROM_WORKER + sentence + " customer (key 81b6")
    assert first.endswith("have FailureHandling leave such records out")
    assert marked.startswith("statestore.failure {")
    assert behind[0] == "Traceback (most recent call last):"
    assert "in processor_error" in behind[1]


@pytest.mark.usefixtures("in_worker")
@pytest.mark.parametrize(
    "error",
    [
        processor_error(),
        LocationInUseError("s3://bucket/state", owner="a", query="b"),
        TopologyChangedError("s3://bucket/state", differences=["x is gone", "y is new"], remedy="Undo it"),
    ],
)
def test_class_sentence_and_fields_are_what_they_were(error: StateStoreError) -> None:
    found = error_of(RuntimeError(sent(error)))
    assert found is not None
    assert (found.error, found.message, found.kind) == (type(error).__name__, str(error), type(error))
    fields = {name: value for name, value in vars(error).items() if name != "message"}
    assert found.fields == fields
    assert error_of(error) == found
    assert str(found) == f"{found.error}: {error}"


@pytest.mark.usefixtures("in_worker")
def test_what_crosses_is_bounded() -> None:
    error = TopologyChangedError("x" * 100_000, differences=["y" * 5000] * 1000, remedy="z" * 10_000)
    error.__cause__ = ValueError("v" * 100_000)
    text = sent(error)
    assert len(text) < 30_000
    found = error_of(RuntimeError(text))
    assert found is not None
    assert found.kind is TopologyChangedError
    assert len(found.message) == 2000


@pytest.mark.usefixtures("in_worker")
def test_errors_that_are_not_ours_go_as_they_are() -> None:
    text = sent(KeyError("customer"))
    assert "Traceback" in text.splitlines()[0]
    assert os.environ["SPARK_HIDE_TRACEBACK"] == ""
    assert error_of(RuntimeError(text)) == QueryFailure("KeyError", "'customer'")


def test_outside_of_a_task_nothing_is_changed() -> None:
    error = processor_error()
    with pytest.raises(ProcessorError) as caught, sentence_first():
        raise error
    assert caught.value is error
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (f"{PREAMBLE}thrown{BEHIND}", "PYTHON_EXCEPTION", "An exception was thrown"),
        ("[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted", "RuntimeError", "Job aborted"),
        ("plain\n\nJVM stacktrace:\nat x", "RuntimeError", "plain"),
        ("Traceback (most recent call last):\n  File\npy4j.Py4JError", "Py4JError", ""),
        ("", "RuntimeError", ""),
        ("x" * 10_000, "RuntimeError", "x" * 500),
    ],
)
def test_what_spark_says_is_shortened(text: str, error: str, message: str) -> None:
    assert error_of(RuntimeError(text)) == QueryFailure(error, message)


def test_a_worker_that_never_came_up_has_a_remedy() -> None:
    failure = error_of(
        RuntimeError("Job aborted\norg.apache.spark.SparkException: Python worker failed to connect back.")
    )
    assert failure is not None
    assert failure.message.startswith("Python worker failed to connect back: ")
    assert "statestore.spark.python_daemon" in failure.message


class Captured(RuntimeError):
    """An exception of the JVM, as pyspark has it: its text is without that of its cause."""

    def __init__(self, text: str, cause: RuntimeError | None) -> None:
        super().__init__(text)
        self._cause = cause


@pytest.mark.parametrize(
    ("said", "error", "fields"),
    [
        (
            "[STATE_STORE_COMMIT_VALIDATION_FAILED] State store commit validation failed for batch 3.\n"
            "Expected 4 commits but got 1.\nMissing commits: (operator=0, partition=1, store=default)",
            "BatchNotEvaluatedError",
            {"evaluated": 1, "partitions": 4},
        ),
        (
            "java.lang.AssertionError: assertion failed: CheckpointInfo length: 0, numPartitions: 2",
            "BatchNotEvaluatedError",
            {"evaluated": 0, "partitions": 2},
        ),
        ("[OUT_OF_LUCK] No luck. SQLSTATE: 0", "OUT_OF_LUCK", {}),
    ],
)
def test_what_only_the_cause_says_is_found(said: str, error: str, fields: dict[str, int]) -> None:
    beginning = "[STREAM_FAILED] Query [id = 1] terminated with exception: "
    failed = Captured(f"{beginning}Exception thrown in awaitResult: ", Captured("Exception", Captured(said, None)))
    for found in (error_of(failed), error_of(RuntimeError(f"{beginning}{said}"))):
        assert found is not None
        assert (found.error, found.fields) == (error, fields)


def test_causes_that_say_no_more_change_nothing() -> None:
    itself = Captured("Job aborted", None)
    itself._cause = itself
    assert error_of(itself) == QueryFailure("Captured", "Job aborted")


@pytest.mark.parametrize(
    "said",
    [
        "{}",
        "{",
        "[" * 5000,
        json.dumps({"error": "ProcessorError", "message": 1, "fields": {}}),
        json.dumps({"error": "ProcessorError", "message": "x", "fields": []}),
        json.dumps({"error": "KeyError", "message": "x", "fields": {}}),
        json.dumps({"error": "StateStoreError", "message": "x" * 20_000, "fields": {}}),
    ],
)
def test_a_line_that_only_looks_like_ours_is_not_believed(said: str) -> None:
    found = error_of(RuntimeError(f"[X] it\nstatestore.failure {said}"))
    assert found is not None
    assert found.error == "X"


def test_fields_that_no_error_of_ours_has_are_left_out() -> None:
    said = json.dumps({"error": "StateStoreError", "message": "x", "fields": {"a": {"b": 1}, "c": [1], "d": "e"}})
    assert error_of(RuntimeError(f"\nstatestore.failure {said}\n")) == QueryFailure("StateStoreError", "x", {"d": "e"})
