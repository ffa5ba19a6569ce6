"""What the processors of a shard keep beside their stores: whole numbers by name. Source: Kafka's ProcessorMetadata."""

from __future__ import annotations

from collections.abc import Mapping

from statestore.errors.run import ProcessorMetadataError
from statestore.recovery.commit.pointer_fields import MAX_NAMES, check_entry


class ProcessorMetadata:
    """The metadata of a task's shard: as it was recorded, and what the task has set since."""

    def __init__(self, recorded: Mapping[str, int]) -> None:
        self.changes: dict[str, int] = {}
        """What was set, for the commit to take over."""
        self._values = dict(recorded)

    def get(self, name: str) -> int | None:
        """Return the number under a name; None if there is none."""
        return self._values.get(name)

    def set(self, node: str, name: str, value: int) -> None:
        """Keep a number under a name. Raises what `ProcessorContext.set_processor_metadata` raises."""
        if type(name) is not str or type(value) is not int:
            raise TypeError(f"processor metadata needs a str name and an int value, got {name!r} and {value!r}")
        check_entry(name, value)
        if name not in self._values and len(self._values) >= MAX_NAMES:
            raise ProcessorMetadataError(node=node, name=name, limit=MAX_NAMES)
        self._values[name] = self.changes[name] = value
