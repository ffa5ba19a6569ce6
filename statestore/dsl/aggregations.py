"""Aggregations: what is kept of a key's records, and what a record changes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from statestore.format.serde import Serde, Serdes

__all__ = ["Aggregation"]


@dataclass(frozen=True)
class Aggregation:
    """An initial value and a function of key, value and what there is. Travels to the executors."""

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    value_serde: Serde[Any] | None = None
    """How it is stored; None is not known."""


def counting() -> Aggregation:
    """Return how many records there were. Kafka's count()."""
    return Aggregation(_zero, _one_more, Serdes.int64())


def reducing(reducer: Callable[[Any, Any], Any], value_serde: Serde[Any] | None) -> Aggregation:
    """Return what a function makes of the value so far and the next one. Kafka's reduce()."""
    return Aggregation(_nothing, _Reduced(reducer), value_serde)


def summing(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the sum of the values, which are numbers."""
    return reducing(_sum, value_serde)


def _zero() -> int:
    return 0


def _nothing() -> None:
    return None


def _one_more(key: Any, value: Any, count: int) -> int:
    return count + 1


def _sum(total: Any, value: Any) -> Any:
    return total + value


@dataclass(frozen=True)
class _Reduced:
    reducer: Callable[[Any, Any], Any]

    def __call__(self, key: Any, value: Any, reduced: Any) -> Any:
        return value if reduced is None else self.reducer(reduced, value)
