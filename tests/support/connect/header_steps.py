"""Vectors that are steps on named lists of headers, each with what it returned and the list after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tests.support.connect.forms import Json

H = TypeVar("H")


class HeaderSteps(Generic[H]):
    """Named lists of headers, and Kafka's operations on them in Python's words."""

    def __init__(self, make: Callable[[], H]) -> None:
        self.named = {"a": make()}

    def run_all(self, vector: Json) -> list[Json]:
        """Run the steps of a vector, each with what it ended with in Java."""
        return [
            self._run(step, of_java) for step, of_java in zip(vector["steps"], vector["result"]["steps"], strict=True)
        ]

    def _run(self, step: Json, of_java: Json) -> Json:
        headers = self.named[step.get("on", "a")]
        try:
            found = self.do(headers, step, of_java)
        except Exception as error:
            found = {"error": self.error_of(step["op"], error)}
        return {**(found or {}), **self.state_of(headers)}

    def do(self, headers: H, step: Json, of_java: Json) -> Json | None:
        """Do a step; return what it returned, if anything."""
        raise NotImplementedError

    def error_of(self, op: str, error: Exception) -> str:
        """Return what Java calls an error."""
        raise NotImplementedError

    def state_of(self, headers: H) -> dict[str, Any]:
        """Return the list after a step."""
        raise NotImplementedError
