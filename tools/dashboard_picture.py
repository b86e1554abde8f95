"""docs/pictures/dashboard.svg: the dashboard's own layout, with example curves in place of data."""

import math
import textwrap
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

from plan.monitoring import COLUMNS, ChartPlan, Tile, tiles
from plan.platform import Platform
from platform_config.platform import PlatformConfig

# A platform that has nearly everything: a queue, a reservation, slices of several hosts on the device plugin.
EXAMPLE: dict[str, Any] = {
    "project": "my-project",
    "zone": "us-east5-b",
    "slices": {
        "train": {
            "machine_type": "ct6e-standard-4t",
            "topology": "4x4",
            "count": 4,
            "capacity": {"model": "reservation", "name": "res-a"},
        }
    },
    "queues": {
        "research": {"namespaces": ["a"], "slices": {"train": 3}},
        "ads": {"namespaces": ["b"], "slices": {"train": 1}},
    },
    "monitoring": {"notify": ["tpu-ops@example.com"], "queue_metrics": "own"},
}
WIDTH, ROW, TOP, GAP = 1440, 20, 76, 8
TITLE, SMALL = 26, 20
LETTERS_IN_A_LINE = 27
CURVES, POINTS = 3, 24
STYLE = f"""\
  svg {{ color-scheme: light dark; }}
  text {{ font-family: system-ui, sans-serif; fill: #1f2328; }}
  .title {{ font-size: {TITLE}px; font-weight: 600; }}
  .small {{ font-size: {SMALL}px; fill: #59636e; }}
  .page {{ fill: #f6f8fa; }}
  .tile {{ fill: #ffffff; stroke: #d1d9e0; }}
  .axis {{ stroke: #8b949e; }}
  .c0 {{ fill: #0969da; stroke: #0969da; }}
  .c1 {{ fill: #bc4c00; stroke: #bc4c00; }}
  .c2 {{ fill: #1a7f37; stroke: #1a7f37; }}
  polyline {{ fill: none !important; stroke-width: 3; }}
  polygon, .bar {{ fill-opacity: 0.55; stroke: none !important; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #f0f6fc; }}
    .small {{ fill: #b1bac4; }}
    .page {{ fill: #0d1117; }}
    .tile {{ fill: #151b23; stroke: #3d444d; }}
    .c0 {{ fill: #4493f8; stroke: #4493f8; }}
    .c1 {{ fill: #f0883e; stroke: #f0883e; }}
    .c2 {{ fill: #3fb950; stroke: #3fb950; }}
  }}"""


def dashboard_picture() -> str:
    """The picture, as SVG that follows the reader's light or dark colours."""
    platform = Platform.of(PlatformConfig.model_validate(EXAMPLE))
    placed = tiles(platform)
    height = TOP + max(tile.y + tile.height for tile in placed) * ROW + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' aria-label="Layout of the dashboard of a TPU platform">',
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{2 * GAP}" y="34">TPU platform {platform.name}</text>',
        f'<text class="small" x="{2 * GAP}" y="62">The layout is the dashboard\'s own; the curves are examples.</text>',
        *(line for index, tile in enumerate(placed) for line in _tile(tile, index)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _tile(tile: Tile, index: int) -> Iterator[str]:
    scale = WIDTH / COLUMNS
    x, y = tile.x * scale + GAP, TOP + tile.y * ROW
    width, height = tile.width * scale - 2 * GAP, tile.height * ROW - GAP
    if not isinstance(tile.content, ChartPlan):
        yield f'<text class="title" x="{x + GAP:.0f}" y="{y + height - 14:.0f}">{escape(tile.content)}</text>'
        return
    chart = tile.content.chart
    yield f'<rect class="tile" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6"/>'
    words = textwrap.wrap(chart.title, LETTERS_IN_A_LINE)
    for number, line in enumerate(words):
        yield f'<text class="title" x="{x + 14:.0f}" y="{y + 36 + number * 32:.0f}">{escape(line)}</text>'
    under = y + 36 + len(words) * 32
    yield f'<text class="small" x="{x + 14:.0f}" y="{under - 4:.0f}">{escape(chart.unit)}</text>'
    area = (x + 14, under + 10, width - 28, y + height - 14 - under - 10)
    yield from _curves(chart.plot, area, index)
    left, bottom = area[0], area[1] + area[3]
    yield f'<line class="axis" x1="{left:.0f}" y1="{bottom:.0f}" x2="{left + area[2]:.0f}" y2="{bottom:.0f}"/>'


def _curves(plot: str, area: tuple[float, float, float, float], seed: int) -> Iterator[str]:
    """Example curves within an area of (left, top, width, height)."""
    left, top, width, height = area
    total = [0.0] * POINTS
    for curve in range(CURVES):
        own = [
            0.12 + 0.14 * abs(math.sin(0.31 * point * (1 + curve / 2) + seed + 2 * curve)) for point in range(POINTS)
        ]
        base = total
        total = own if plot == "LINE" else [below + value for below, value in zip(base, own, strict=True)]
        shift = 0.25 * curve if plot == "LINE" else 0.0
        step = width / (POINTS - 1)
        at = [(left + point * step, top + height * (1 - value - shift)) for point, value in enumerate(total)]
        floor = [(left + point * step, top + height * (1 - value)) for point, value in enumerate(base)]
        if plot == "STACKED_BAR":
            if curve == 0:
                yield from _bars(at, top + height, step, seed)
        elif plot == "LINE":
            yield f'<polyline class="c{curve}" points="{_points(at)}"/>'
        else:
            yield f'<polygon class="c{curve}" points="{_points([*at, *reversed(floor)])}"/>'


def _bars(at: list[tuple[float, float]], bottom: float, step: float, seed: int) -> Iterator[str]:
    """A few bars: what they count is rare."""
    for point, (x, y) in enumerate(at[:-1]):
        if (point * 7 + seed) % 5 == 0:
            high = 2 * (bottom - y)
            yield (
                f'<rect class="bar c1" x="{x:.1f}" y="{bottom - high:.1f}" width="{step * 0.7:.1f}"'
                f' height="{high:.1f}"/>'
            )


def _points(at: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
