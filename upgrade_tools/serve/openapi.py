"""The description of all paths in OpenAPI's words, and the parameters that each has."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from upgrade_tools.serve.asking import DEFAULT_KEY_LIMIT, DEFAULT_LIMIT, MAX_LIMIT

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "format": "int64"}
_PARAMETERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "store": ("A store, by its name.", _TEXT),
    "stage": ("The number of a stage of the query, from 0.", _NUMBER),
    "shard": ("A shard.", _NUMBER),
    "version": ("A version of a shard.", _NUMBER),
    "key": ("A key: text, 0x and hex, or as keyAs says.", _TEXT),
    "id": ("A key by its bytes in hex, as answers name it.", _TEXT),
    "prefix": ("What keys begin with: text, or 0x and hex.", _TEXT),
    "from": ("The first key, written as `key`.", _TEXT),
    "to": ("The last key, inclusive.", _TEXT),
    "header": (
        "NAME or NAME=VALUE, each text or 0x and hex: only entries with this header. May be given several times.",
        _TEXT,
    ),
    "timeFrom": ("Not before this time, in milliseconds since the epoch.", _NUMBER),
    "timeTo": ("Not after this time, inclusive.", _NUMBER),
    "limit": (
        f"How many at once: at most {MAX_LIMIT}; if missing {DEFAULT_LIMIT}, of a key {DEFAULT_KEY_LIMIT}.",
        _NUMBER,
    ),
    "page": ("Where to go on: `page` of the answer before.", _TEXT),
    "before": ("Only writes of versions before this one: `before` of the answer before.", _NUMBER),
    "start": ("The start of the window or session, or from when the version is valid.", _NUMBER),
    "end": ("The end of the window or session, or until when the version is valid.", _NUMBER),
    "keyAs": ("Read keys as this serde: string, bytes, int32, int64, double, boolean, json.", _TEXT),
    "valueAs": ("Read values likewise.", _TEXT),
}
_AS: Final = ("keyAs", "valueAs")
_SELECTION: Final = ("key", "id", "prefix", "from", "to", "header", "timeFrom", "timeTo")
_PATHS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "/api/overview": ("The state at a glance: stages, stores with figures, topology, batches.", ()),
    "/api/stores": ("All stores: kind, format, times.", ()),
    "/api/stores/{store}": ("A store's figures, counted or sampled: shards, largest keys, headers.", _AS),
    "/api/stores/{store}/entries": (
        "Entries in pages; all as they are read if NDJSON is accepted.",
        (*_SELECTION, "limit", "page", *_AS),
    ),
    "/api/stores/{store}/key": ("All that a store has for a key.", ("key", "id", "limit", *_AS)),
    "/api/stores/{store}/value": ("The bytes of one value.", ("key", "id", "start", "end", "keyAs")),
    "/api/stores/{store}/history": (
        "The writes of a key in the retained deltas, newest first.",
        ("key", "id", "shard", "before", *_AS),
    ),
    "/api/batches": ("The batches that were seen, oldest first, with the versions that they made.", ()),
    "/api/shards/{stage}/{shard}/versions/{version}": (
        "What a version of a shard has changed: new and old.",
        ("store", "limit", "page", *_AS),
    ),
    "/api/files": ("Snapshots, deltas and garbage of the shards.", ()),
    "/api/events": ("Server-sent events: `batch` for each new one, `problem` where it can't be read.", ()),
    "/api/openapi.json": ("This description.", ()),
}
_OTHER_TYPES: Final = {
    "/api/stores/{store}/entries": ("application/json", "application/x-ndjson"),
    "/api/stores/{store}/value": ("application/octet-stream",),
    "/api/events": ("text/event-stream",),
}
_ERROR: Final = {
    "description": "Why there is no answer, in words.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def parameters_of(path: str) -> tuple[str, ...]:
    """Return the parameters that an address of this path may have."""
    return _PATHS[path][1]


def description() -> dict[str, Any]:
    """Return the whole description."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Committed state", "version": version("statestore")},
        "paths": {path: {"get": _operation(path)} for path in _PATHS},
        "components": {
            "schemas": {
                "Error": {"type": "object", "required": ["error"], "properties": {"error": _TEXT}},
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(path: str) -> dict[str, Any]:
    summary, names = _PATHS[path]
    in_path = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    types = _OTHER_TYPES.get(path, ("application/json",))
    return {
        "summary": summary,
        "parameters": [
            *(_parameter(name, "path") for name in in_path),
            *(_parameter(name, "query") for name in names),
        ],
        "responses": {
            "200": {"description": "What was asked for.", "content": {each: {} for each in types}},
            "default": _ERROR,
        },
    }


def _parameter(name: str, where: str) -> dict[str, Any]:
    says, schema = _PARAMETERS[name]
    if name == "header":
        schema = {"type": "array", "items": _TEXT}
    return {"name": name, "in": where, "description": says, "required": where == "path", "schema": schema}
