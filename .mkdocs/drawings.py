"""Mermaid's text of a topology becomes the drawing that notebooks show: who reads the site fetches no scripts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape, unescape
from typing import Any

from mkdocs.exceptions import PluginError

from statestore.processor.pictures.drawing import draw

_SHAPE = re.compile(r'^ *(?P<id>[nst]\d+)\W+"(?P<label>.*)"\W+$')
_EDGE = re.compile(r"^ *(?P<above>[nt]\d+) (?:-->|-\.-) (?P<below>[nst]\d+)$")
_AROUND = re.compile(r"^ *(flowchart TD|subgraph .*|end)$")


@dataclass
class _Node:
    """A node as `draw` takes it."""

    name: str
    label: tuple[str, ...]
    kind: str = "Processor"
    parents: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)


def on_config(config: Any) -> None:
    """Have fences of mermaid drawn."""
    fence = {"name": "mermaid", "class": "drawing", "format": _drawing}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}


def _drawing(source: str, language: str, css_class: str, options: Any, md: Any, **of_the_fence: Any) -> str:
    return (
        f'<div class="{css_class}">{draw(_nodes(source))}</div>'
        f"<details><summary>As text</summary><pre><code>{escape(source)}</code></pre></details>"
    )


def _nodes(source: str) -> list[_Node]:
    """Return the nodes of what `to_mermaid` has written. Raises PluginError for any other Mermaid."""
    labels: dict[str, str] = {}
    nodes: dict[str, _Node] = {}
    for line in filter(None, source.splitlines()):
        if shape := _SHAPE.match(line):
            lines = tuple(map(unescape, shape["label"].split("<br/>")))
            labels[shape["id"]] = lines[0]
            if shape["id"].startswith("n"):
                nodes[shape["id"]] = _Node(shape["id"], lines)
        elif edge := _EDGE.match(line):
            _connect(nodes, labels, edge["above"], edge["below"])
        elif not _AROUND.match(line):
            raise PluginError(f"only topologies are drawn, and this line is none of one: {line}")
    return list(nodes.values())


def _connect(nodes: dict[str, _Node], labels: dict[str, str], above: str, below: str) -> None:
    if above.startswith("t"):
        nodes[below].kind = "Source"
        nodes[below].topics.append(labels[above])
    elif below.startswith("n"):
        nodes[below].parents.append(above)
    else:
        kept = nodes[above].topics if below.startswith("t") else nodes[above].stores
        kept.append(labels[below])
