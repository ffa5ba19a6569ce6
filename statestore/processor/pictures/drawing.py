"""A topology as a drawing that any notebook and browser shows by itself: SVG, from topics down, without scripts.

Topics are round, processors are boxes, and state stores are dashed; one that several processors share is drawn once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Protocol

_CHARACTER, _LINE, _PADDING, _GAP, _BETWEEN_ROWS = 8, 17, 12, 24, 44
_ROUND, _BOX, _DASHED = "round", "box", "dashed"


class DrawnNode(Protocol):
    """What is drawn of a node: names of its parents, and of the topics and stores that it is connected with."""

    @property
    def kind(self) -> str:
        """Source, Processor or Sink."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def label(self) -> tuple[str, ...]:
        """The lines in it."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of the nodes above it."""

    @property
    def topics(self) -> tuple[str, ...]:
        """What it reads or writes."""

    @property
    def stores(self) -> tuple[str, ...]:
        """What it keeps."""


@dataclass
class _Shape:
    """What is drawn in one place; rows count from the top."""

    form: str
    lines: Sequence[str]
    row: int = 0
    above: list[_Shape] = field(default_factory=list)
    x: float = 0
    y: float = 0

    @property
    def width(self) -> float:
        """As wide as its longest line, about."""
        return max(map(len, self.lines)) * _CHARACTER + 2 * _PADDING

    @property
    def height(self) -> float:
        """As high as its lines are."""
        return len(self.lines) * _LINE + _PADDING


def draw(nodes: Sequence[DrawnNode]) -> str:
    """Return nodes, with what they read, keep and write, as an SVG image."""
    shapes = _shapes(nodes)
    rows: dict[int, list[_Shape]] = {}
    for shape in shapes:
        rows.setdefault(shape.row, []).append(shape)
    widths = {row: sum(shape.width + _GAP for shape in shown) - _GAP for row, shown in rows.items()}
    width, top = max(widths.values(), default=0) + 2 * _PADDING, float(_PADDING)
    for row in sorted(rows):
        left = (width - widths[row]) / 2
        for shape in rows[row]:
            shape.x, shape.y = left, top
            left += shape.width + _GAP
        top += max(shape.height for shape in rows[row]) + _BETWEEN_ROWS
    height = top - _BETWEEN_ROWS + _PADDING if rows else 0
    edges = [_edge(above, shape) for shape in shapes for above in shape.above]
    drawn = [*edges, *map(_drawn, shapes)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="13" fill="none" '
        f'stroke="currentColor">{"".join(drawn)}</svg>'
    )


def _shapes(nodes: Sequence[DrawnNode]) -> list[_Shape]:
    """Return what is drawn, each below all that leads to it."""
    boxes = {node.name: _Shape(_BOX, node.label) for node in nodes}
    read: dict[str, _Shape] = {}
    written: dict[str, _Shape] = {}
    stores: dict[str, _Shape] = {}
    for node in nodes:
        box = boxes[node.name]
        box.above += [boxes[parent] for parent in node.parents]
        for topic in node.topics:
            if node.kind == "Source":
                box.above.append(read.setdefault(topic, _Shape(_ROUND, (topic,))))
            else:
                written.setdefault(topic, _Shape(_ROUND, (topic,))).above.append(box)
        for store in node.stores:
            stores.setdefault(store, _Shape(_DASHED, (store,))).above.append(box)
    shapes = [*read.values(), *boxes.values(), *written.values(), *stores.values()]
    moved = True
    while moved:
        moved = False
        for shape in shapes:
            row = max((above.row + 1 for above in shape.above), default=0)
            moved |= row != shape.row
            shape.row = row
    return shapes


def _edge(above: _Shape, below: _Shape) -> str:
    dashed = ' stroke-dasharray="4 3"' if below.form == _DASHED else ""
    return (
        f'<line x1="{above.x + above.width / 2:.0f}" y1="{above.y + above.height:.0f}" '
        f'x2="{below.x + below.width / 2:.0f}" y2="{below.y:.0f}"{dashed}/>'
    )


def _drawn(shape: _Shape) -> str:
    radius = shape.height / 2 if shape.form == _ROUND else 4
    dashed = ' stroke-dasharray="4 3"' if shape.form == _DASHED else ""
    middle = shape.x + shape.width / 2
    lines = "".join(
        f'<text x="{middle:.0f}" y="{shape.y + _LINE * (number + 1):.0f}" text-anchor="middle" fill="currentColor" '
        f'stroke="none">{escape(line)}</text>'
        for number, line in enumerate(shape.lines)
    )
    return (
        f'<rect x="{shape.x:.0f}" y="{shape.y:.0f}" width="{shape.width:.0f}" height="{shape.height:.0f}" '
        f'rx="{radius:.0f}"{dashed}/>{lines}'
    )
