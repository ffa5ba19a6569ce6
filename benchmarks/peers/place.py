"""Where a peer runs, as its program is told, and how many records are done by what it keeps there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    """What a run of a peer is given. The topics are there; `scratch` is an empty directory that goes with it."""

    servers: str
    input_topics: tuple[str, ...]
    output_topic: str
    scratch: Path
    records_per_batch: int

    @classmethod
    def from_arguments(cls, servers: str, inputs: str, output_topic: str, scratch: str, batch: str) -> Place:
        """Return what `arguments` were made of."""
        return cls(servers, tuple(inputs.split(",")), output_topic, Path(scratch), int(batch))

    @property
    def arguments(self) -> list[str]:
        """What each program is given: BOOTSTRAP INPUTS OUTPUT SCRATCH RECORDS_PER_BATCH, commas between inputs."""
        inputs, batch = ",".join(self.input_topics), str(self.records_per_batch)
        return [self.servers, inputs, self.output_topic, str(self.scratch), batch]

    @property
    def checkpoint(self) -> Path:
        """Where a Spark query has its checkpoint."""
        return self.scratch / "checkpoint"


def told_records(place: Place) -> int:
    """Return how many records Kafka's DSL has said to be done."""
    try:
        return int((place.scratch / "progress").read_text())
    except FileNotFoundError:
        return 0


def committed_records(place: Place) -> int:
    """Return how many records are in batches that Spark has committed."""
    batches = [int(commit.name) for commit in (place.checkpoint / "commits").glob("[0-9]*")]
    if not batches:
        return 0
    # The last line has where the batch ends, by topic and partition, which both begin with 0.
    ends = json.loads((place.checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[-1])
    return sum(sum(partitions.values()) for partitions in ends.values())
