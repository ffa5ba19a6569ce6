"""When the changes of a table or of a window go on.

Source: Kafka Streams' Suppressed and its BufferConfig (KIP-328), and EmitStrategy (KIP-825).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from statestore.stores.supplier import Duration, milliseconds


@dataclass(frozen=True)
class EmitStrategy:
    """Whether a window is emitted at each change, or once, when it closes."""

    is_final: bool

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Return the strategy that emits each change: the default."""
        return cls(False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """Return the strategy that emits a window once, when its grace has passed in event time."""
        return cls(True)


@dataclass(frozen=True)
class BufferConfig:
    """How many keys and bytes are held back, and what happens when there are more.

    Each `with_` method returns another one. Bytes are counted as in Kafka Streams: keys, values, headers and some 28
    bytes for each change, which is less than they take on disk. Both bounds apply to each shard.
    """

    record_bound: int | None = None
    byte_bound: int | None = None
    is_strict: bool = True
    """Whether exceeding a bound is an error; otherwise the earliest changes go on before their time."""

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """Return one without bounds: all keys are held back, on disk."""
        return cls()

    @classmethod
    def max_records(cls, record_limit: int) -> BufferConfig:
        """Return one of at most so many keys, which emits early when full. Raises ValueError for a negative number."""
        return cls(is_strict=False).with_max_records(record_limit)

    @classmethod
    def max_bytes(cls, byte_limit: int) -> BufferConfig:
        """Return one of at most so many bytes, which emits early when full. Raises ValueError for a negative number."""
        return cls(is_strict=False).with_max_bytes(byte_limit)

    def with_max_records(self, record_limit: int) -> BufferConfig:
        """Return one of at most so many keys. Raises ValueError for a negative number."""
        return replace(self, record_bound=_bound("record_limit", record_limit))

    def with_max_bytes(self, byte_limit: int) -> BufferConfig:
        """Return one of at most so many bytes. Raises ValueError for a negative number."""
        return replace(self, byte_bound=_bound("byte_limit", byte_limit))

    def with_no_bound(self) -> BufferConfig:
        """Return one without bounds."""
        return BufferConfig()

    def shut_down_when_full(self) -> BufferConfig:
        """Return one that raises SuppressionBufferFullError when it is full, which fails the batch."""
        return replace(self, is_strict=True)

    def emit_early_when_full(self) -> BufferConfig:
        """Return one that sends the earliest changes on when it is full, before their time."""
        return replace(self, is_strict=False)


@dataclass(frozen=True)
class Suppressed:
    """How long changes of a table are held back; of several changes of a key, only the last one goes on."""

    buffer: BufferConfig
    limit_ms: int | None
    """How long after the first change of a key; None means until its window closes."""
    name: str | None = None

    @classmethod
    def until_window_closes(cls, buffer_config: BufferConfig) -> Suppressed:
        """Return one that sends on the final value of each window when it closes, and nothing before.

        Raises ValueError for a buffer that emits early, which would send on values that are not final.
        """
        if not buffer_config.is_strict:
            raise ValueError(
                "until_window_closes() sends on only final results: give it BufferConfig.unbounded(), or a bounded one "
                "with shut_down_when_full()"
            )
        return cls(buffer_config, None)

    @classmethod
    def until_time_limit(cls, time_to_wait: Duration, buffer_config: BufferConfig | None = None) -> Suppressed:
        """Return one that waits so long, in event time, after a key's first change; the default buffer is unbounded.

        Raises ValueError for a negative time.
        """
        return cls(buffer_config or BufferConfig(), milliseconds("time_to_wait", time_to_wait))

    def with_name(self, name: str) -> Suppressed:
        """Return one that names its node; the store is named after it."""
        return replace(self, name=name)


def _bound(parameter: str, bound: int) -> int:
    if type(bound) is not int or bound < 0:
        raise ValueError(f"{parameter} must be a whole number, 0 or more, not {bound!r}")
    return bound
