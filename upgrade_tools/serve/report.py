"""The overview as one file of HTML: it has no scripts, and nothing from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from upgrade_tools.rows.entry_encoding import AS_FOUND
from upgrade_tools.serve import answers
from upgrade_tools.serve.content import Document
from upgrade_tools.serve.following import Follower
from upgrade_tools.serve.sampling import Samples

_STYLE: Final = Path(__file__).parent / "static/style.css"
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_SHOWN: Final = 120
_SHOWN_SHARDS: Final = 50
_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")
_BAR: Final = 120
_READ_S: Final = 20.0
"""How long shards are opened; what is not read by then is an estimate, and is called one."""
_NONE: Final = "-"


def state_report(follower: Follower) -> str:
    """Return the page of a state that is open. Raises RecoveryError, LocationError, FormatError."""
    samples = Samples()
    deadline = time.monotonic() + _READ_S
    found = answers.overview(follower, samples)
    while time.monotonic() < deadline and any(store["shardsRead"] < store["shards"] for store in found["stores"]):
        found = answers.overview(follower, samples)
    stores = [answers.store_figures(follower, samples, store["name"], AS_FOUND) for store in found["stores"]]
    files = answers.files([stage.state for stage in follower.stages])
    title = f"Committed state of {visible(found['location'])}"
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="quiet">Written {_time(time.time_ns() // 1_000_000)} by upgrade-tools report.</p>',
        _facts(found),
        "<h2>Stores</h2>",
        _stores(stores),
        *(_store(store) for store in stores),
        "<h2>Topology</h2>",
        _topology(found["topology"]),
        "<h2>Shards</h2>",
        _shards(found["stages"], files["shards"]),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(found['location'])}</title>\n<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def visible(text: str) -> str:
    """Return text as HTML: what is not seen, or turns the direction of text, is an escape."""
    return "".join(
        escape(each) if each.isprintable() else f'<span class="escape">{escape(ascii(each)[1:-1])}</span>'
        for each in text
    )


def _content(data: Document | None) -> str:
    if data is None:
        return '<span class="quiet">null</span>'
    whole = str(data["text"] if "text" in data else data["hex"])
    more = f'<span class="quiet"> … {_bytes(data["size"])}</span>' if len(whole) > _SHOWN or "cut" in data else ""
    kind = "" if "text" in data else '<span class="kind">hex </span>'
    return f'<span class="content">{kind}<bdi>{visible(whole[:_SHOWN])}</bdi>{more}</span>'


def _facts(found: Document) -> str:
    stage = found["stages"][0]
    entries = sum(store["entries"] for store in found["stores"])
    counted = all(store["counted"] for store in found["stores"])
    pointers = [pointer for each in found["stages"] for pointer in each["pointers"]]
    return _tiles(
        ("Batch", _NONE if stage["batch"] is None else f"{stage['batch']:,}", _time(stage["time"])),
        ("Entries", _about(entries, counted), f"in {len(found['stores'])} stores"),
        ("Shards", f"{len(pointers):,}", f"by {escape(stage['shardBy'])}"),
        ("Skipped records", f"{sum(pointer['skippedRecords'] for pointer in pointers):,}", "that no serde could read"),
    )


def _stores(stores: Sequence[Document]) -> str:
    rows = []
    for store in stores:
        sampled = store["sampled"]
        sizes = [sampled[name] for name in ("keyBytes", "valueBytes", "headerBytes")]
        words = f"keys {_bytes(sizes[0])}, values {_bytes(sizes[1])}, headers {_bytes(sizes[2])}"
        bar = _bar(zip(sizes, ("keys", "values", "headers"), strict=True), sum(sizes))
        share = f'<span class="share">{bar}<span class="quiet">{words}</span></span>'
        rows.append(
            (visible(store["name"]), escape(store["description"]), _about(store["entries"], store["counted"]), share)
        )
    return _table("The stores of the query", ("Store", "What it is", "Entries", "Keys, values, headers"), rows)


def _store(store: Document) -> str:
    headers = [
        (
            visible(header["name"]),
            f"{header['count']:,}",
            _bytes(header["sizeBytes"]),
            " ".join(
                f'<span class="chip">{_content(each["value"])} {each["count"]:,}</span>' for each in header["values"]
            ),
        )
        for header in store["headers"]
    ]
    largest = [(_content(each["key"]), _bytes(each["sizeBytes"]), str(each["shard"])) for each in store["largest"]]
    read = "counted" if store["counted"] else f"of {store['sampled']['entries']:,} sampled entries"
    tables = [
        _table(f"Headers, {read}", ("Header", "Entries", "Bytes", "Most frequent values"), headers) if headers else "",
        _table(f"Largest keys, {read}", ("Key", "Bytes", "Shard"), largest) if largest else "",
    ]
    return "\n".join([f"<h2>{visible(store['name'])}</h2>", *tables]) if any(tables) else ""


def _topology(nodes: Iterable[Document]) -> str:
    rows = [
        (
            visible(str(node["name"])),
            visible(str(node.get("type", ""))),
            visible(", ".join(map(str, node.get("parents", ())))),
            visible(", ".join(map(str, node.get("stores", ())))),
        )
        for node in nodes
    ]
    return _table("The nodes of the query", ("Node", "Type", "Fed by", "Stores"), rows)


def _shards(stages: Iterable[Document], files: Iterable[Document]) -> str:
    listed = {(each["stage"], each["shard"]): each for each in files}
    rows = []
    for stage in stages:
        for pointer in stage["pointers"]:
            found: dict[str, Any] = listed.get((stage["stage"], pointer["shard"]), {})
            rows.append(
                (
                    str(pointer["shard"]),
                    f"{pointer['version']:,}",
                    _time(pointer["streamTime"]),
                    *(_bytes(found.get(name)) for name in ("snapshotBytes", "deltaBytes", "garbageBytes")),
                )
            )
    more = f'<p class="quiet">and {len(rows) - _SHOWN_SHARDS:,} more</p>' if len(rows) > _SHOWN_SHARDS else ""
    columns = ("Shard", "Version", "Stream time", "Snapshots", "Deltas", "Garbage")
    return _table("What is committed of each shard, and its files", columns, rows[:_SHOWN_SHARDS]) + more


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "\n".join(
        f'<tr><th scope="row" data-name="{columns[0]}">{row[0]}</th>'
        + "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in zip(columns[1:], row[1:], strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _tiles(*figures: tuple[str, str, str]) -> str:
    made = (f'<div><dt>{name}</dt><dd>{shown}</dd><dd class="quiet">{note}</dd></div>' for name, shown, note in figures)
    return f'<dl class="tiles">{"".join(made)}</dl>'


def _bar(parts: Iterable[tuple[int, str]], whole: int) -> str:
    shapes, x = [f'<rect width="{_BAR}" height="12" class="track"/>'], 0.0
    for size, kind in parts:
        width = size * _BAR / whole if whole else 0.0
        shapes.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="12" class="{kind}"/>')
        x += width
    box = f'viewBox="0 0 {_BAR} 12" preserveAspectRatio="none"'
    return f'<svg class="bar" {box} aria-hidden="true">{"".join(shapes)}</svg>'


def _about(count: int, counted: bool) -> str:
    return f"{count:,}" if counted else f"about {count:,}"


def _bytes(size: int | None) -> str:
    if size is None:
        return _NONE
    number, unit = float(size), 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit else f"{size} B"


def _time(ms: int | None) -> str:
    if ms is None or ms < 0:
        return _NONE
    if ms < 10**11 or ms > 10**14:
        return f"{ms:,} ms"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))
