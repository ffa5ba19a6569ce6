"""How an error of ours crosses from another process to the driver: as JSON, or within the text of Spark's error.

    ProcessorError: node 'total' failed on record orders-0 at offset 3 ...      the sentence
    statestore.failure {"error": "ProcessorError", "message": ..., "fields": {...}}   what `error_of` reads
    Traceback (most recent call last): ...                                       the innermost lines of the user's code

JSON, not a pickle: who reads it runs no code of who wrote it. It has the fields that are texts, numbers or lists of
texts, and cuts long ones.

Spark sends the text of a traceback, which begins with the frames of its own worker. An environment variable leaves them
out, and the worker looks at it when it fails. So it is set there: failing is the last thing that the worker does.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

import statestore.errors
from statestore.errors import BatchNotEvaluatedError, StateStoreError
from statestore.errors.root import error_with
from statestore.errors.run import EntryPointChangedError
from statestore.errors.state import LocationSharedError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Bounds(NamedTuple):
    """How long the JSON of an error may get, in characters; `items` bounds the length of lists."""

    message: int
    field: int
    items: int
    whole: int


AS_A_VALUE: Final = Bounds(message=1 << 16, field=1 << 16, items=1000, whole=1 << 20)
"""For JSON that travels alone, not within a text that people read."""
_IN_TEXT: Final = Bounds(message=2000, field=500, items=30, whole=8000)
_MESSAGE: Final = "message"
_ENDS_WITH_SENTENCE: Final = "_statestore_ends_with_sentence"
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
"""What Spark says when a union joins two operators of one state: it raises before `observe_figures` could."""
_OTHER_OPERATOR: Final = re.compile(
    r"STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA\].*?OperatorName: (\w+).*?OperatorName: (\w+)", re.DOTALL
)
"""What Spark says, before any task runs, of a checkpoint of another operator; it names the recorded one first."""
_NOT_EVALUATED: Final = re.compile(
    r"\[STATE_STORE_COMMIT_VALIDATION_FAILED\].*?Expected (?P<all>\d+) commits but got (?P<some>\d+)"
    r"|assertion failed: CheckpointInfo length: (?P<some_2>\d+), numPartitions: (?P<all_2>\d+)",
    re.DOTALL,
)
"""What Spark says, after the batch, of state that no task has committed; the second is of checkpoint format 2."""
_ENTRY_POINTS: Final = {
    "transformWithState": "transform_with_state",
    "applyInPandasWithState": "apply_in_pandas_with_state",
}
"""How the names of Spark's operators begin, and which entry point makes them."""
_MAX_TRACEBACK_LINES: Final = 30
_MAX_SHORT: Final = 500
_NO_WORKER: Final = "Python worker failed to connect back"
_SLOW_STARTS: Final = (
    "it took longer to start than Spark waits, or died. Start the query again; where workers start slowly, set "
    "spark.python.daemon.module to statestore.spark.python_daemon when the session is made"
)


@dataclass(frozen=True)
class QueryFailure:
    """Why a query failed: the class of the error, its sentence and its fields."""

    error: str
    """The name of a class of `statestore.errors`; for any other error, Spark's condition or Python's class."""
    message: str
    """One sentence. For an error of Spark or Python, the beginning of its text."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of an error of ours that are texts, numbers or lists of texts; long ones are cut."""

    @property
    def kind(self) -> type[StateStoreError] | None:
        """The class of the error; None if it is not ours."""
        return _kind_of(self.error)

    def __str__(self) -> str:
        return f"{self.error}: {self.message}"


def failure_of(error: StateStoreError, bounds: Bounds) -> QueryFailure:
    """Return class, sentence and fields of an error, within bounds."""
    cut = {name: _cut(value, bounds) for name, value in vars(error).items() if name != _MESSAGE}
    # The name that users know: of the class itself, or of its nearest base in `statestore.errors`.
    name = next(base.__name__ for base in type(error).__mro__ if _kind_of(base.__name__) is base)
    return QueryFailure(name, str(error), _plain(cut))


def failure_json(error: StateStoreError, bounds: Bounds = AS_A_VALUE) -> str:
    """Return an error as one line of JSON, without the fields for which there is no room."""
    failure = failure_of(error, bounds)
    said: dict[str, Any] = {"error": failure.error, _MESSAGE: failure.message[: bounds.message], "fields": {}}
    for name, value in failure.fields.items():
        said["fields"][name] = value
        if len(json.dumps(said)) > bounds.whole:
            del said["fields"][name]
    return json.dumps(said)


def failure_from(text: str) -> QueryFailure | None:
    """Return what `failure_json` wrote; None for any other text."""
    try:
        said = json.loads(text)
        error, message, fields = said["error"], said[_MESSAGE], said["fields"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not (isinstance(error, str) and isinstance(message, str) and isinstance(fields, dict)):
        return None
    return QueryFailure(error, message, _plain(fields))


def raise_from(text: str) -> None:
    """Raise the error that `failure_json` wrote, of the root class if its own is not known here; else do nothing."""
    failure = failure_from(text)
    if failure is None:
        return
    if failure.kind is None:
        raise StateStoreError(str(failure))
    raise error_with(failure.kind, (failure.message,), {**failure.fields, _MESSAGE: failure.message})


def _kind_of(name: str) -> type[StateStoreError] | None:
    found = getattr(statestore.errors, name, None)
    return found if isinstance(found, type) and issubclass(found, StateStoreError) else None


def _cut(value: Any, bounds: Bounds) -> Any:
    if isinstance(value, list | tuple):
        return [_cut(item, bounds) for item in value[: bounds.items]]
    return value[: bounds.field] if isinstance(value, str) else value


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str | int | float)


def error_of(failed: StreamingQuery | BaseException) -> QueryFailure | None:
    """Return why a query failed, or what its exception says; None if the query has not failed.

    Reads the text that Spark hands on, so it also works on a log: `error_of(Exception(text))`.
    """
    error = failed if isinstance(failed, BaseException) else failed.exception()
    if error is None:
        return None
    if isinstance(error, StateStoreError):
        return failure_of(error, _IN_TEXT)
    return _failure_in(list(_texts(error)), type(error).__name__)


def _failure_in(texts: Sequence[str], name: str) -> QueryFailure:
    """Return what the texts of an exception and its causes say; `name` is the class of the exception."""
    for line in (line for text in texts for line in _MARKED_LINE.findall(text)):
        # A user's text may have a line of this form, too.
        found = None if len(line) > _IN_TEXT.whole + _IN_TEXT.message else failure_from(line)
        if found is not None and found.kind is not None:
            return found
    said = [_shortened(text) for text in texts]
    translated = next(filter(None, map(_translated, said)), None)
    if translated is not None:
        return failure_of(translated, _IN_TEXT)
    telling = next((text for text in said if _CONDITION.match(text) or _TRACEBACK in text), said[0])
    return _foreign(name, telling)


def end_with_sentence() -> None:
    """Make the text of Spark's exception for a failed query end with what `error_of` says, if the error is ours.

    That text is all that a script, a notebook and a log show, and it ends with the plan of the query. pyspark offers no
    hook but the exception's class; classic sessions and Spark Connect have one each.
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
    """Yield the text of an error, and those of its causes in the JVM, which pyspark keeps beside it."""
    cause: Any = error
    for _ in range(20):
        if cause is None:
            return
        yield str(cause)
        cause = getattr(cause, "_cause", None)


@contextmanager
def sentence_first() -> Iterator[None]:
    """In a Python worker of Spark, raise errors of ours so that Spark's text begins with their sentence."""
    try:
        yield
    except StateStoreError as error:
        if TaskContext.get() is None:
            raise
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise _crossing(error) from None


def _crossing(error: StateStoreError) -> StateStoreError:
    """Return an error of the same class, whose text has all that is to cross: Spark's text begins with the class."""
    marked = _MARK + failure_json(error, _IN_TEXT)
    behind = (line[: _IN_TEXT.field] for line in _traceback(error))
    lines = (_one_line(str(error))[: _IN_TEXT.message], marked, *behind)
    return error_with(type(error), ("\n".join(lines),), error.__dict__)


def _traceback(error: StateStoreError) -> list[str]:
    """Return the traceback of what user code raised, else of the error itself: its first line and its last ones."""
    cause = error.__cause__ or error
    lines = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__)).splitlines()
    if len(lines) <= _MAX_TRACEBACK_LINES:
        return lines
    return [lines[0], f"  ({len(lines) - _MAX_TRACEBACK_LINES} lines left out)", *lines[1 - _MAX_TRACEBACK_LINES :]]


def _foreign(name: str, text: str) -> QueryFailure:
    """Return what Spark's text says of an error that is not ours. A traceback of Python says it in its last line."""
    if _NO_WORKER in text:
        return QueryFailure(name, f"{_NO_WORKER}: {_SLOW_STARTS}")
    if _TRACEBACK in text:
        python_error = _PYTHON_ERROR.match(text.splitlines()[-1])
        if python_error is not None:
            return QueryFailure(python_error[1], (python_error[2] or "")[:_MAX_SHORT])
    condition = _CONDITION.match(text)
    if condition is not None:
        name, text = condition[1], text[condition.end() :]
    return QueryFailure(name, _one_line(text)[:_MAX_SHORT])


def _shortened(text: str) -> str:
    """Return Spark's text without what it puts around the failure of every query."""
    text = _SPARKS_PREAMBLE.sub("", text)
    for end in _SPARKS_ENDS:
        text = text.partition(end)[0]
    return _SQL_STATE.sub("", text.strip())


def _translated(text: str) -> StateStoreError | None:
    """Return our error for one that Spark raises although our options are the cause."""
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
