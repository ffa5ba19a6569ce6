"""Typed headers against Kafka 4.3.1: every vector of what its Connect classes did."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.connect.forms import Json, decode_schema, decode_value, encode_schema, encode_value, same_form
from tests.support.connect.running import GOLDEN, failure_of, has_module, vectors_of

SCRIPT = Path(__file__).parents[1] / "support" / "connect_vectors.py"
ALL = list(vectors_of(GOLDEN))
VECTORS = [vector for vector in ALL if has_module(vector.kind)]


@pytest.mark.parametrize("kind", sorted({vector.kind for vector in VECTORS}))
def test_ours_does_what_kafka_does(kind: str) -> None:
    failures = {vector.id: failure_of(vector) for vector in VECTORS if vector.kind == kind}
    assert {name: failure for name, failure in failures.items() if failure is not None} == {}


def forms(content: Json, key: str) -> Iterator[Json]:
    """Yield what is under a key, wherever it is."""
    for name, each in content.items() if isinstance(content, dict) else enumerate(content):
        if name == key and isinstance(each, dict):
            yield each
        if isinstance(each, dict | list):
            yield from forms(each, key)


def test_a_decoded_form_is_encoded_to_itself() -> None:
    for vector in ALL:
        for value in forms(vector.content["result"], "value"):
            if len(value) == 1:
                assert same_form(value, encode_value(decode_value(value)))
        for schema in forms(vector.content["result"], "schema"):
            assert same_form(schema, encode_schema(decode_schema(schema)))


def run_script(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env={}, capture_output=True, text=True, check=False)


def test_the_script_says_what_failed(tmp_path: Path) -> None:
    vectors = json.loads(gzip.decompress((GOLDEN / "values.json.gz").read_bytes()))["vectors"][:3]
    vectors[1]["result"] = {"null": True}
    (tmp_path / "values.json").write_text(json.dumps({"vectors": vectors}))
    (tmp_path / "cases-1.json").write_text("{}")
    done = run_script(tmp_path, cwd=tmp_path)
    assert done.returncode == 1
    failure, count = done.stdout.splitlines()
    assert failure.startswith("values-1-002: ")
    assert count == "2 of 3"


def test_the_script_says_how_many_passed(tmp_path: Path) -> None:
    done = run_script(GOLDEN / "values.json.gz", cwd=tmp_path)
    count = len(list(vectors_of(GOLDEN / "values.json.gz")))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{count} of {count}\n", "")


@pytest.mark.parametrize("arguments", [(), (".",), ("nothing.json",)])
def test_the_script_wants_vectors(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run_script(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr
