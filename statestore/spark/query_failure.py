"""How an error of ours crosses from a Python worker to the driver: its sentence first, its fields on one line behind.

    ProcessorError: node 'total' failed on record orders-0 at offset 3 ...      the sentence
    statestore.failure {"error": "ProcessorError", "message": ..., "fields": {...}}   what `error_of` reads
    Traceback (most recent call last): ...                                       of the user's code, the innermost lines

Spark sends the text of a traceback, which begins with the frames of its own worker. Its switch to leave them out is an
environment variable, which the worker looks at when it fails: it is set there, as that is the last thing it does.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

from statestore.errors import BatchNotEvaluatedError, StateStoreError
from statestore.errors.root import error_with
from statestore.errors.run import EntryPointChangedError
from statestore.errors.state import LocationSharedError
from statestore.spark.error_record import Bounds, kind_of, record_from, record_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_ENDS_WITH_SENTENCE: Final = "_statestore_ends_with_sentence"
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_MARK: Final = "statestore.failure "
_MARKED_LINE: Final = re.compile(rf"^{re.escape(_MARK)}(\{{.*\}})\s*$", re.MULTILINE)
_SPARKS_PREAMBLE: Final = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_SPARKS_ENDS: Final = ("\n=== Streaming Query ===", "\n\nJVM stacktrace:", "\nJVM stacktrace:")
_SQL_STATE: Final = re.compile(r"\s*(SQLSTATE: \w+\s*)+$")
_CONDITION: Final = re.compile(r"^\[([A-Z0-9_.]+)\]")
_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*(\w+)(?:: (.*))?$")
_TRACEBACK: Final = "Traceback (most recent call last):"
_SHARED: Final = re.compile(
    r"^\[DUPLICATED_METRICS_NAME\].*?CollectMetrics statestore-\w+, \[([^\],]{1,1000}) AS state_location", re.DOTALL
)
"""What Spark says, without a chance for us, of two operators of one state that come together behind them."""
_OTHER_OPERATOR: Final = re.compile(
    r"STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA\].*?OperatorName: (\w+).*?OperatorName: (\w+)", re.DOTALL
)
"""What Spark says, before any task, of a checkpoint with another operator; the recorded one is the first."""
_NOT_EVALUATED: Final = re.compile(
    r"\[STATE_STORE_COMMIT_VALIDATION_FAILED\].*?Expected (?P<all>\d+) commits but got (?P<some>\d+)"
    r"|assertion failed: CheckpointInfo length: (?P<some_2>\d+), numPartitions: (?P<all_2>\d+)",
    re.DOTALL,
)
"""What Spark says, after the batch, of state that nobody has committed; the second of checkpoint format 2."""
_ENTRY_POINTS: Final = {
    "transformWithState": "transform_with_state",
    "applyInPandasWithState": "apply_in_pandas_with_state",
}
"""What the names of Spark's operators begin with, and which entry point makes them."""
_IN_TEXT: Final = Bounds(message=2000, field=500, items=30, whole=8000)
_MAX_TRACEBACK_LINES: Final = 30
_MAX_SHORT: Final = 500
_NO_WORKER: Final = "Python worker failed to connect back"
_SLOW_STARTS: Final = (
    "it took longer to start than Spark waits, or died. Start the query again; where workers start slowly, set "
    "spark.python.daemon.module to statestore.spark.python_daemon when the session is made"
)
_MAX_CAUSES: Final = 20


@dataclass(frozen=True)
class QueryFailure:
    """Why a query failed: the class of the error, its sentence and its fields."""

    error: str
    """The name of a class of `statestore.errors`; of what is none of those, Spark's condition or Python's class."""
    message: str
    """One sentence. Of an error of Spark's or of Python's, the beginning of what it says."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of an error of ours that are texts, numbers or lists of texts; long ones are cut."""

    @property
    def kind(self) -> type[StateStoreError] | None:
        """The class of the error; None if it is not ours."""
        return kind_of(self.error)

    def __str__(self) -> str:
        return f"{self.error}: {self.message}"


def error_of(failed: StreamingQuery | BaseException) -> QueryFailure | None:
    """Return why a query failed, or what an exception of one says; None if the query has not failed.

    It is read from the text that Spark hands on, so it also works with what was logged: `error_of(Exception(text))`.
    """
    error = failed if isinstance(failed, BaseException) else failed.exception()
    if error is None:
        return None
    if isinstance(error, StateStoreError):
        return _of_ours(error)
    return _failure_in(list(_texts(error)), type(error).__name__)


def _failure_in(texts: Sequence[str], name: str) -> QueryFailure:
    """Return what texts say, of an exception and its causes; `name` is the class of the exception."""
    for line in (line for text in texts for line in _MARKED_LINE.findall(text)):
        found = _parse(line)
        if found is not None:
            return found
    said = [_shortened(text) for text in texts]
    translated = next(filter(None, map(_translated, said)), None)
    if translated is not None:
        return _of_ours(translated)
    telling = next((text for text in said if _CONDITION.match(text) or _TRACEBACK in text), said[0])
    return _foreign(name, telling)


def end_with_sentence() -> None:
    """Have Spark's exception of a failed query end with what `error_of` says, if the error is ours.

    Its text ends with the plan of the query, and is all that a script, a notebook and a log show. pyspark has no hook
    for it but the class, of which a classic session and one of Connect have each their own.
    """
    for kind in StreamingQueryException.__subclasses__():
        if not hasattr(kind, _ENDS_WITH_SENTENCE):
            setattr(kind, _ENDS_WITH_SENTENCE, True)
            setattr(kind, "__str__", _with_sentence(kind.__str__))  # noqa: B010


def _with_sentence(spark_says: Callable[[Any], str]) -> Callable[[Any], str]:
    def said(error: BaseException) -> str:
        text = spark_says(error)
        failure = _failure_in([text, *_texts(getattr(error, "_cause", None))], type(error).__name__)
        return text if failure.kind is None else f"{text.rstrip()}\n\n{failure}"

    return said


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield what an error says, and what its causes in the JVM say, which pyspark keeps beside it."""
    cause: Any = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return
        yield str(cause)
        cause = getattr(cause, "_cause", None)


@contextmanager
def sentence_first() -> Iterator[None]:
    """In a Python worker of Spark, let errors of ours out such that what Spark says begins with their sentence."""
    try:
        yield
    except StateStoreError as error:
        if TaskContext.get() is None:
            raise
        os.environ[_HIDE_TRACEBACK] = "1"
        raise _crossing(error) from None


def _crossing(error: StateStoreError) -> StateStoreError:
    """Return the error with all that is to cross in its text; it stays of its class, which Spark's text begins with."""
    marked = _MARK + record_of(error, _IN_TEXT).to_json(_IN_TEXT)
    behind = (line[: _IN_TEXT.field] for line in _traceback(error))
    lines = (_one_line(str(error))[: _IN_TEXT.message], marked, *behind)
    return error_with(type(error), ("\n".join(lines),), error.__dict__)


def _traceback(error: StateStoreError) -> list[str]:
    """Return the lines that say where it came from: of what user code raised, if it was that, else of the error."""
    cause = error.__cause__ or error
    lines = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__)).splitlines()
    if len(lines) <= _MAX_TRACEBACK_LINES:
        return lines
    return [lines[0], f"  ({len(lines) - _MAX_TRACEBACK_LINES} lines left out)", *lines[1 - _MAX_TRACEBACK_LINES :]]


def _parse(line: str) -> QueryFailure | None:
    """Return what a marked line says; None if it is not ours, which may stand in any text."""
    said = None if len(line) > _IN_TEXT.whole + _IN_TEXT.message else record_from(line)
    return None if said is None or said.kind is None else QueryFailure(said.error, said.message, said.fields)


def _of_ours(error: StateStoreError) -> QueryFailure:
    return QueryFailure(**vars(record_of(error, _IN_TEXT)))


def _foreign(name: str, text: str) -> QueryFailure:
    """Return what Spark says of an error that is none of ours: of Python's the last line, which says what it was."""
    condition = _CONDITION.match(text)
    if _NO_WORKER in text:
        return QueryFailure(name, f"{_NO_WORKER}: {_SLOW_STARTS}")
    if _TRACEBACK in text:
        last = text.splitlines()[-1]
        python_error = _PYTHON_ERROR.match(last)
        if python_error is not None:
            return QueryFailure(python_error[1], (python_error[2] or "")[:_MAX_SHORT])
    if condition is not None:
        name, text = condition[1], text[condition.end() :]
    return QueryFailure(name, _one_line(text)[:_MAX_SHORT])


def _shortened(text: str) -> str:
    """Return what Spark says without what it puts around each failure of a query."""
    text = _SPARKS_PREAMBLE.sub("", text)
    for end in _SPARKS_ENDS:
        text = text.partition(end)[0]
    return _SQL_STATE.sub("", text.strip())


def _translated(text: str) -> StateStoreError | None:
    """Return what we would have said, had Spark asked, where Spark refuses what our options are to blame for."""
    shared = _SHARED.search(text)
    if shared is not None:
        return LocationSharedError(shared[1])
    evaluated = _NOT_EVALUATED.search(text)
    if evaluated is not None:
        partitions, found = (int(evaluated[name] or evaluated[f"{name}_2"]) for name in ("all", "some"))
        return BatchNotEvaluatedError(evaluated=found, partitions=partitions)
    other = _OTHER_OPERATOR.search(text)
    if other is None:
        return None
    recorded, asked = (
        next((via for begins, via in _ENTRY_POINTS.items() if name.startswith(begins)), None) for name in other.groups()
    )
    return None if recorded is None or asked is None else EntryPointChangedError(recorded=recorded, asked=asked)


def _one_line(text: str) -> str:
    return " ".join(text.split())
