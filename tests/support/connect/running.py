"""Vectors of a file or a folder: each is run, and what came of it is compared with what Kafka 4.3.1 did."""

from __future__ import annotations

import gzip
import importlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from statestore.errors import StateStoreError
from tests.support.connect.forms import Json, same_form

GOLDEN = Path(__file__).parents[2] / "golden" / "connect"
ENDINGS = (".json.gz", ".json")

JAVA_NAMES = {"NullValueException": "NullPointerException"}
"""What Kafka throws in place of our errors, where it is not of the same name."""


class Vector(NamedTuple):
    """What was asked for, and what came of it; `kind` is the name of its file, without the seed."""

    kind: str
    content: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.content["id"])


class NoVectorsError(Exception):
    """A path has no vectors."""


def vectors_of(path: Path) -> Iterator[Vector]:
    """Yield the vectors of a file, or of all files in a folder. Raises NoVectorsError."""
    if path.is_dir():
        found = [each for each in sorted(path.rglob("*")) if each.name.endswith(ENDINGS) and "vectors" in _read(each)]
        if not found:
            raise NoVectorsError(f"{path}: no files of vectors, {' or '.join(ENDINGS)}, are in it")
        for each in found:
            yield from vectors_of(each)
        return
    content = _read(path)
    if "vectors" not in content:
        raise NoVectorsError(f"{path}: has no vectors, it is no result of a run on Kafka")
    kind_of_file = path.name.partition(".")[0]
    for vector in content["vectors"]:
        named = re.fullmatch(r"([a-z_]+)-.*", vector["id"])
        yield Vector(named[1] if named and has_module(named[1]) else kind_of_file, vector)


def _read(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    found = json.loads(gzip.decompress(content) if path.name.endswith(".gz") else content)
    return found if isinstance(found, dict) else {}


def has_module(kind: str) -> bool:
    """Return whether vectors of a kind can be run."""
    return (Path(__file__).parent / f"{kind}.py").exists()


def failure_of(vector: Vector) -> str | None:
    """Return what is wrong with what came of a vector, in one line; None if it is as in Kafka."""
    if not has_module(vector.kind):
        return f"there is no way to run vectors of {vector.kind}"
    run: Callable[[Json], Json] = importlib.import_module(f"{__package__}.{vector.kind}").run
    expected = vector.content["result"]
    found = guarded(lambda: run(vector.content))
    if same_form(expected, found, texts_of_floats_vary=bool(vector.content.get("jdkDependent"))):
        return None
    asked = {key: each for key, each in vector.content.items() if key not in ("id", "result")}
    return f"{_line(asked)}: expected {_line(expected)}, found {_line(found)}"


def guarded(run: Callable[[], Json]) -> Json:
    """Return what a function returns, or the error that it raises in the form of a result."""
    try:
        return run()
    except Exception as error:
        return {"error": error_name(error)}


def error_name(error: Exception) -> str:
    """Return the simple name of Kafka's exception; of what is not ours to raise, a name that Kafka does not have."""
    name = type(error).__name__
    return JAVA_NAMES.get(name, name) if isinstance(error, StateStoreError) else f"Python's {name}: {error}"


def _line(form: Json) -> str:
    return json.dumps(form, ensure_ascii=True)
