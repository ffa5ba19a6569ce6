"""Runs vectors on the real Kafka Connect, with tests/java/RunConnect.java."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from statestore.testing.jars import connect_jars
from tests.support.connect.running import Vector
from tests.support.java.program import PROGRAMS, JavaProgramError, run_java_program

PROGRAM = PROGRAMS / "RunConnect.java"


def vectors_with_results(asked: Iterable[dict[str, Any]]) -> list[Vector]:
    """Return vectors, each with its kind, with what Kafka Connect did. Starts Java once.

    Raises what `run_java_program` raises, for a vector that makes no sense too.
    """
    vectors = list(asked)
    said = run_java_program(PROGRAM, lines="".join(f"{json.dumps(each)}\n" for each in vectors), jars=connect_jars)
    results = [json.loads(line) for line in said.splitlines()]
    for vector, result in zip(vectors, results, strict=True):
        if "broken" in result:
            raise JavaProgramError(PROGRAM, 0, output=f"{vector} makes no sense: {result['broken']}")
    return [
        Vector(vector["kind"], {"id": f"live-{number}", **vector, "result": result, "jdkDependent": True})
        for number, (vector, result) in enumerate(zip(vectors, results, strict=True))
    ]
