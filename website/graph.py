"""Draws the graphs of the pages as pictures: the few forms of Mermaid's flowcharts that this repository writes.

Mermaid itself is a script that a browser would load; these pictures are in the page.
"""

import re
from collections import defaultdict
from html import escape, unescape

from docutils import nodes
from docutils.parsers.rst import Directive

NODE = re.compile(r'^(\w+)\["?(.*?)"?\]$')
EDGE = re.compile(r"^(\w+) --> (\w+)$")
NAME = ' class="name"'
LETTER, LINE, PAD, BETWEEN, BESIDE = 8.4, 18, 10, 48, 12
"""Pixels: the width of a letter and height of a line, space around a box's text, between rows and between boxes."""


class Graph(Directive):
    """A fence `mermaid`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        boxes, edges = read(list(self.content))
        return [nodes.raw("", f'<div class="graph">{draw(boxes, edges)}</div>', format="html")]


def read(lines: list[str]) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """The boxes by id, each with its lines of text, and the arrows. Raises ValueError for a line of another form."""
    boxes: dict[str, list[str]] = {}
    edges: list[tuple[str, str]] = []
    for line in (line.strip() for line in lines):
        if node := NODE.match(line):
            boxes[node[1]] = [unescape(re.sub(r"</?b>", "", text)) for text in node[2].split("<br/>")]
        elif edge := EDGE.match(line):
            edges.append((edge[1], edge[2]))
        elif line and line != "flowchart LR":
            raise ValueError(f"{line!r} is not drawn: a graph has boxes a[text] and arrows a --> b")
    return boxes, edges


def rows(boxes: dict[str, list[str]], edges: list[tuple[str, str]]) -> list[list[str]]:
    """The boxes by the longest way of arrows that leads to each. Raises ValueError for arrows in a circle."""
    before = defaultdict(list)
    for source, target in edges:
        before[target].append(source)
    ranks: dict[str, int] = {}
    while len(ranks) < len(boxes):
        ready = [box for box in boxes if box not in ranks and all(each in ranks for each in before[box])]
        if not ready:
            raise ValueError("the arrows lead in a circle, or to a box that is not there")
        ranks |= {box: max((ranks[each] + 1 for each in before[box]), default=0) for box in ready}
    return [[box for box in boxes if ranks[box] == rank] for rank in range(max(ranks.values()) + 1)]


def draw(boxes: dict[str, list[str]], edges: list[tuple[str, str]]) -> str:
    """An SVG picture, from top to bottom."""
    sizes = {
        box: (max(map(len, lines)) * LETTER + 2 * PAD, len(lines) * LINE + 2 * PAD) for box, lines in boxes.items()
    }
    ranks = rows(boxes, edges)
    whole = max(sum(sizes[box][0] + BESIDE for box in row) for row in ranks)
    places: dict[str, tuple[float, float, float, float]] = {}
    top = 1.0
    for row in ranks:
        left = (whole - sum(sizes[box][0] + BESIDE for box in row) + BESIDE) / 2
        for box in row:
            places[box] = (left, top, *sizes[box])
            left += sizes[box][0] + BESIDE
        top += max(sizes[box][1] for box in row) + BETWEEN
    drawn = [_arrow(places[source], places[target]) for source, target in edges]
    drawn += [_box(places[box], lines) for box, lines in boxes.items()]
    tip = '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    tip += '<path d="M0 0L6 3L0 6z"/></marker></defs>'
    view = f'viewBox="0 0 {whole:.0f} {top - BETWEEN + 1:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {view}>{tip}{"".join(drawn)}</svg>'


def _arrow(source: tuple[float, float, float, float], target: tuple[float, float, float, float]) -> str:
    x1, y1 = source[0] + source[2] / 2, source[1] + source[3]
    x2, y2 = target[0] + target[2] / 2, target[1]
    bend = BETWEEN / 2
    way = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    return f'<path marker-end="url(#tip)" d="{way}"/>'


def _box(place: tuple[float, float, float, float], lines: list[str]) -> str:
    x, y, width, height = place
    texts = "".join(
        f'<text{"" if number else NAME} x="{x + PAD:.0f}" y="{y + PAD + LINE * number + 13:.0f}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5"/>{texts}'
