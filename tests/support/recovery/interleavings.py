"""Runs several tasks on one location in every order in which their operations on it can take place.

A task is a function of a location. It is deterministic, so what the location has answered so far is all that its state
depends on. So a task is not kept standing: it is run again from its beginning, and given the same answers, to find what
it does next. Of orders that lead to the same files and the same answers only one is followed. A task that crashes is
one that does nothing more: each state that is visited is one in which all may have crashed.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

from statestore.recovery.location.durable_files import DurableEntry
from statestore.recovery.location.durable_location import DurableLocation

Files = frozenset[tuple[str, bytes]]
Answers = tuple[Any, ...]


class Operation(NamedTuple):
    """What a task does next: `kind` is read, write, delete or list."""

    kind: str
    name: str
    data: bytes = b""


class _Paused(BaseException):
    """The answers are used up."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation


class Ended(NamedTuple):
    """How a task ended: what it returned, or the error that it raised."""

    value: Any = None
    error: Exception | None = None


@dataclass
class _ReplayedLocation(DurableLocation):
    answers: Answers
    asked: Operation | None = field(default=None)

    def __post_init__(self) -> None:
        super().__init__("/replayed")
        self._next = 0

    def _answer(self, *operation: Any) -> Any:
        # What is done while the pause unwinds the task is not done.
        if self.asked is not None or self._next == len(self.answers):
            self.asked = self.asked or Operation(*operation)
            raise _Paused(self.asked)
        self._next += 1
        return self.answers[self._next - 1]

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        data = self._answer("read", name)
        return None if data is None else pa.py_buffer(data)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self._answer("write", name, bytes(memoryview(data)))

    def delete(self, name: str) -> None:
        self._answer("delete", name)

    def check_writable(self) -> None:
        pass

    def entries(self, directory: str) -> list[DurableEntry]:
        return [DurableEntry(name, size_bytes, None) for name, size_bytes in self._answer("list", directory)]

    def directories(self, directory: str) -> list[str]:
        return list(self._answer("directories", directory))


def perform(files: Files, operation: Operation) -> tuple[Files, Any]:
    """Return the files after an operation, and what it answers."""
    there = dict(files)
    kind, name, data = operation
    prefix = f"{name}/" if name else ""
    below = [path.removeprefix(prefix) for path in sorted(there) if path.startswith(prefix)]
    if kind == "read":
        return files, there.get(name)
    if kind == "list":
        return files, tuple((prefix + path, len(there[prefix + path])) for path in below if "/" not in path)
    if kind == "directories":
        return files, tuple(sorted({prefix + path.split("/")[0] for path in below if "/" in path}))
    if kind == "write":
        there[name] = data
    else:
        there.pop(name, None)
    return frozenset(there.items()), None


class State(NamedTuple):
    """The files, and of each task how it ended or None."""

    files: Files
    ended: tuple[Ended | None, ...]


class Interleavings:
    """All states that tasks can reach. `tasks` see other unique names than each other."""

    def __init__(
        self, tasks: Sequence[Callable[[DurableLocation], Any]], files: dict[str, bytes] | None = None
    ) -> None:
        self._tasks = tasks
        self._files: Files = frozenset((files or {}).items())
        self._known: dict[tuple[int, Answers], Operation | Ended] = {}

    def states(self) -> Iterator[State]:
        """Yield each state once."""
        start = (self._files, ((),) * len(self._tasks))
        seen, open_ = {start}, [start]
        while open_:
            files, answers = open_.pop()
            steps = [self._step(task, given) for task, given in enumerate(answers)]
            yield State(files, tuple(step if isinstance(step, Ended) else None for step in steps))
            for task, step in enumerate(steps):
                if isinstance(step, Operation):
                    after, answer = perform(files, step)
                    next_ = (after, (*answers[:task], (*answers[task], answer), *answers[task + 1 :]))
                    if next_ not in seen:
                        seen.add(next_)
                        open_.append(next_)

    def _step(self, task: int, answers: Answers) -> Operation | Ended:
        known = self._known.get((task, answers))
        if known is None:
            known = self._known[task, answers] = self._replay(task, answers)
        return known

    def _replay(self, task: int, answers: Answers) -> Operation | Ended:
        dice = random.Random(task)
        location = _ReplayedLocation(answers)
        with mock.patch("uuid.uuid4", side_effect=lambda: uuid.UUID(int=dice.getrandbits(128))):
            try:
                ended = Ended(self._tasks[task](location))
            except _Paused as paused:
                return paused.operation
            except Exception as error:
                ended = Ended(error=error)
        return location.asked or ended
