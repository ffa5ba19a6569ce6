"""The progress of a test driver: what a restart continues from, besides the stores.

{"format": 2, "wall_clock_ms": int, "stream_time_ms": int, "stores": {name: stream_time_ms}, "offsets": {topic: next},
 "punctuations": {node: [[clock, interval_ms, start_ms | null, next_ms | null], ...]},
 "processor_metadata": {name: whole number}}          not before format 2
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from statestore.errors import RecoveryError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.commit.pointer_fields import (
    RecordedPunctuations,
    processor_metadata_from_json,
    punctuations_from_json,
)

_FILE = "statestore.driver.json"
_FORMAT = 2
_READABLE_FORMATS = (1, 2)


@dataclass
class Progress:
    """Clocks, input offsets, punctuations and the processors' metadata at the last commit."""

    wall_clock_ms: int = 0
    stream_time_ms: int = -1
    stores: dict[str, int] = field(default_factory=dict)
    """The stream time of each segmented store."""
    offsets: dict[str, int] = field(default_factory=dict)
    """The offset that the next record of each topic will have."""
    punctuations: RecordedPunctuations = field(default_factory=dict)
    processor_metadata: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Progress:
        """Return what is recorded in a directory, or the beginning. Raises RecoveryError if it is malformed."""
        path = directory / _FILE
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["format"] not in _READABLE_FORMATS:
                raise ValueError(f"format {fields['format']}")
            return cls(
                whole_number(fields["wall_clock_ms"], 0),
                whole_number(fields["stream_time_ms"], -1),
                {str(name): whole_number(time_ms, -1) for name, time_ms in fields["stores"].items()},
                {str(topic): whole_number(offset, 0) for topic, offset in fields["offsets"].items()},
                punctuations_from_json(fields["punctuations"]),
                processor_metadata_from_json({} if fields["format"] == 1 else fields["processor_metadata"]),
            )
        except FileNotFoundError:
            return cls()
        except MALFORMED as cause:
            raise RecoveryError(str(path), f"is not the progress of a test driver ({cause!r}). Delete it") from cause

    def write(self, directory: Path) -> None:
        """Record this in a directory: afterwards there is the old file or the new one, nothing between."""
        directory.mkdir(parents=True, exist_ok=True)
        written = directory / f"{_FILE}.tmp"
        written.write_text(json.dumps({"format": _FORMAT, **asdict(self)}), encoding="utf-8")
        os.replace(written, directory / _FILE)
