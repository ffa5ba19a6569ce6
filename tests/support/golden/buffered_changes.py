"""Writes tests/golden/buffered-changes.json: what Kafka Streams logs of suppressed changes, one of each shape.

python -m tests.support.golden.buffered_changes
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statestore import Headers
from statestore.format.values.buffered_record import decode_logged_record
from tests.support.java.dsl import run_dsl_with_kafka_streams
from tests.support.twins.random_dsl import draw_dsl_scenario

PATH = Path(__file__).parents[2] / "golden" / "buffered-changes.json"


def write() -> None:
    scenarios = [
        draw_dsl_scenario(family, seed) for family in ("suppressed tables", "suppressed windows") for seed in range(60)
    ]
    shapes: dict[Any, dict[str, Any]] = {}
    for result in run_dsl_with_kafka_streams(scenarios):
        for step in result.get("emitted", ()):
            for topic, records in step.items():
                for key, value, _, headers in records:
                    if "SUPPRESS" in topic and value is not None:
                        held, due_ms = decode_logged_record(bytes.fromhex(value))
                        record_headers = [(each.key, each.value) for each in Headers.from_bytes(held.header_bytes)]
                        nulls = [each is None for each in (held.prior, held.old, held.new)]
                        shape = (
                            *nulls,
                            held.prior == held.old,
                            len(record_headers),
                            (None in dict(record_headers).values()),
                        )
                        fields = {name: _shown(part) for name, part in held._asdict().items() if name != "header_bytes"}
                        shown = [[name, _shown(part)] for name, part in record_headers]
                        entry = {"key": key, "value": value, "headers": headers, **fields, "time_ms": due_ms}
                        shapes.setdefault(shape, {**entry, "record_headers": shown})
    lines = ",\n ".join(json.dumps(shapes[shape], ensure_ascii=False) for shape in sorted(shapes))
    PATH.write_text(f"[{lines}]\n")


def _shown(part: Any) -> Any:
    return part.hex() if isinstance(part, bytes) else part


if __name__ == "__main__":
    write()
