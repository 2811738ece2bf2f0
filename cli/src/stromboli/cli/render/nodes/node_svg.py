"""Renders a node's hardware as SVG: a box for each NUMA node with its cores, NICs and GPUs, the
NVLinks below them, a table of connections, and allocations. Pure.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

from stromboli.cli.render.nodes import node_layout
from stromboli.shared.messages.node_topology import UNKNOWN_NUMA_NODE

WIDTH, MARGIN, GAP = 1180, 36, 24
TILE, TILE_GAP = 26, 5
GPU_HEIGHT, NIC_HEIGHT = 76, 40
INK, FAINT, LINE, PAPER, CARD = "#1d2433", "#6b7487", "#d5dae3", "#f6f7fa", "#ffffff"
NVLINK, BAD = "#5b9a13", "#c9302c"
COLOURS = ("#2f7ed8", "#d1478c", "#1f9e89", "#d98a00", "#7b52c7", "#c85a3a", "#4c8f2f", "#5a6b8c")
"""Fill colours of consecutive pods; they repeat if there are more pods."""
WAYS = {
    "INTERNAL": "#cfe8f7",
    "PIX": "#cfe8f7",
    "PXB": "#dff0f8",
    "PHB": "#fbf0cf",
    "NODE": "#fbf0cf",
    "SYS": "#f1f2f5",
}
NARROW, ABOUT = 400, 3
"""Width in pixels below which the description of a NUMA node is placed below its name; its number
of lines."""
LONGEST_NOTES = 12
_RESERVED = (
    '<defs><pattern id="reserved" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#e9ecf1"/>'
    '<rect width="2" height="6" fill="#b9c0cc"/></pattern></defs>'
)
"""Hatched pattern of CPUs that are neither free nor allocated."""


def render_svg(layout: node_layout.NodeLayout) -> str:
    """The SVG document of a node."""
    parts = list(_head(layout))
    y = 124.0
    places: dict[int, tuple[float, float]] = {}
    inside: list[str] = []
    for row in _rows(layout.numa_nodes):
        wide = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        has_nics = any(numa_node.nics for numa_node in row)
        high = max(_height(numa_node, wide, has_nics=has_nics) for numa_node in row)
        for place, numa_node in enumerate(row):
            x = MARGIN + place * (wide + GAP)
            parts.append(_box(x, y, wide, high, CARD, LINE, 12))
            inside += _cell(layout, numa_node, (x, y, wide), places, has_nics=has_nics)
        y += high + GAP
    links, y = _nvlinks(layout, places, y)
    parts += [*links, *inside]  # links are drawn behind the devices
    table, below = _table(layout, y)
    legend, beside = _legend(layout, y, _table_width(layout))
    parts += [*table, *legend]
    y = max(below, beside)
    faults = [f"GPU {each.gpu.index}: {why}" for each in layout.gpus for why in each.gpu.problems]
    for title, notes, ink in (("Faults", faults, BAD), ("Not known", layout.notes, FAINT)):
        for line in [title, *_cut(notes)] if notes else []:
            y += 20
            parts.append(_text(MARGIN, y, line, 13, ink, bold=line == title))
        y += 10 if notes else 0
    return _document(parts, y + MARGIN)


def _cut(notes: Sequence[str]) -> list[str]:
    more = len(notes) - LONGEST_NOTES
    return [*notes[:LONGEST_NOTES], *([f"and {more} more"] if more > 0 else [])]


def _document(parts: list[str], height: float) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" '
        "font-family=\"Inter, 'Segoe UI', Helvetica, Arial, sans-serif\">\n"
        f'{_RESERVED}\n<rect width="{WIDTH}" height="{height:.0f}" fill="{PAPER}"/>\n{body}\n</svg>'
    )


def _head(layout: node_layout.NodeLayout) -> Iterator[str]:
    yield _text(MARGIN, 52, layout.node, 26, bold=True)
    yield _text(MARGIN, 78, "  ·  ".join(layout.title), 14)
    if layout.kubelet:
        yield _text(MARGIN, 100, f"kubelet: {layout.kubelet}", 13, FAINT)
    colour = BAD if layout.is_silent else FAINT
    yield _text(WIDTH - MARGIN, 52, layout.age, 13, colour, anchor="end", bold=layout.is_silent)


def _rows(
    numa_nodes: tuple[node_layout.NumaCell, ...],
) -> Iterator[tuple[node_layout.NumaCell, ...]]:
    """The NUMA nodes in rows: up to four small ones or two large ones."""
    is_small = all(
        len(numa_node.cores) <= 16 and len(numa_node.gpus) <= 2 for numa_node in numa_nodes
    )
    wide = 4 if is_small and len(numa_nodes) > 2 else 2
    for start in range(0, len(numa_nodes), wide):
        yield numa_nodes[start : start + wide]


def _columns(numa_node: node_layout.NumaCell, wide: float) -> int:
    """The number of cores in a row: a multiple of eight if at least eight fit."""
    most = max(int((wide - 40 + TILE_GAP) // (TILE + TILE_GAP)), 1)
    return min(most - most % 8 if most >= 8 else most, max(len(numa_node.cores), 1))


def _height(numa_node: node_layout.NumaCell, wide: float, *, has_nics: bool) -> float:
    high = 62.0 + (16 * ABOUT + 4 if wide < NARROW else 0)
    if numa_node.cores:
        high += math.ceil(len(numa_node.cores) / _columns(numa_node, wide)) * (TILE + TILE_GAP) + 12
    if has_nics:
        high += NIC_HEIGHT + 16
    if numa_node.gpus:
        high += GPU_HEIGHT + 12
    return high


def _cell(
    layout: node_layout.NodeLayout,
    numa_node: node_layout.NumaCell,
    frame: tuple[float, float, float],
    places: dict[int, tuple[float, float]],
    *,
    has_nics: bool,
) -> Iterator[str]:
    """The content of a NUMA node's frame. ``places`` collects the lower edges of its GPUs.
    ``has_nics``: a NUMA node in the row has NICs, so that GPUs are aligned.
    """
    x, y, wide = frame
    title, about = _cell_title(numa_node)
    yield _text(x + 20, y + 30, title, 15, bold=True)
    if wide < NARROW:
        for line in about:
            y += 16
            yield _text(x + 20, y + 32, line, 12, FAINT)
        y += 16 * (ABOUT - len(about)) + 4
    else:
        yield _text(x + wide - 20, y + 30, "  ·  ".join(about), 12, FAINT, anchor="end")
    y += 48
    columns = _columns(numa_node, wide)
    for number, core in enumerate(numa_node.cores):
        left = x + 20 + number % columns * (TILE + TILE_GAP)
        yield from _core(core, left, y + number // columns * (TILE + TILE_GAP))
    if numa_node.cores:
        y += math.ceil(len(numa_node.cores) / columns) * (TILE + TILE_GAP) + 12
    devices = max(len(numa_node.gpus), len(numa_node.nics), 1)
    each = min((wide - 40 - 10 * (devices - 1)) / devices, 190)
    lefts = [x + 20 + place * (each + 10) for place in range(devices)]
    below = y + (NIC_HEIGHT + 16 if has_nics else 0)
    for left, at in zip(lefts, _nic_columns(layout, numa_node), strict=False):
        if at is not None:
            yield from _nic(layout, numa_node, at, (left, y, each, below))
    for left, at in zip(lefts, numa_node.gpus, strict=False):
        yield from _gpu(layout, at, left, below, each)
        places[at] = (left + each / 2, below + GPU_HEIGHT)


def _nic_columns(
    layout: node_layout.NodeLayout, numa_node: node_layout.NumaCell
) -> list[int | None]:
    """Column -> index of a NIC. A NIC is above the GPU that shares a switch with it; other NICs are
    in free columns."""
    found: list[int | None] = [None] * max(len(numa_node.gpus), len(numa_node.nics))
    rest = []
    for at in numa_node.nics:
        gpu_connections = layout.nics[at].gpu_connections
        near = [
            place
            for place, gpu in enumerate(numa_node.gpus)
            if gpu < len(gpu_connections)
            and gpu_connections[gpu] in ("PIX", "PXB")
            and found[place] is None
        ]
        if near:
            found[near[0]] = at
        else:
            rest.append(at)
    for at in rest:
        found[found.index(None)] = at
    return found


def _cell_title(numa_node: node_layout.NumaCell) -> tuple[str, list[str]]:
    if numa_node.numa_node.id == UNKNOWN_NUMA_NODE:
        return "unknown NUMA node", []
    said = [f"socket {', '.join(map(str, numa_node.sockets))}"] if numa_node.sockets else []
    if numa_node.numa_node.memory_bytes:
        said.append(node_layout.format_bytes(numa_node.numa_node.memory_bytes))
    pages = [
        f"{each.free}/{each.total} × {node_layout.format_bytes(each.size_bytes)} pages free"
        for each in numa_node.numa_node.huge_pages
    ]
    return f"NUMA node {numa_node.numa_node.id}", ["  ·  ".join(said), *pages[: ABOUT - 1]]


def _core(core: tuple[tuple[int, str], ...], x: float, y: float) -> Iterator[str]:
    """A tile for a core: one part per thread, labelled with the number of the CPU."""
    wide = TILE / len(core)
    for place, (cpu, mark) in enumerate(core):
        fill, ink = _shade(mark)
        left = x + place * wide
        title = f"<title>CPU {cpu}: {escape(_meaning(mark))}</title>"
        radius = 5 if len(core) == 1 else 3
        yield (
            f'<rect x="{left:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{TILE}" '
            f'rx="{radius}" fill="{fill}">{title}</rect>'
        )
        if mark not in (node_layout.FREE, node_layout.RESERVED):
            yield _text(left + wide / 2 - 0.5, y + TILE / 2 + 4, mark, 11, ink, anchor="middle")


def _meaning(mark: str) -> str:
    return {node_layout.FREE: "free", node_layout.RESERVED: "reserved"}.get(mark, f"held by {mark}")


def _shade(mark: str) -> tuple[str, str]:
    if mark == node_layout.FREE:
        return "#e9ecf1", FAINT
    if mark == node_layout.RESERVED:
        return "url(#reserved)", FAINT
    return colour(mark), "#ffffff"


def _nic(
    layout: node_layout.NodeLayout,
    numa_node: node_layout.NumaCell,
    at: int,
    frame: tuple[float, float, float, float],
) -> Iterator[str]:
    x, y, wide, below = frame
    nic = layout.nics[at]
    if numa_node.gpus and any(way in ("PIX", "PXB") for way in nic.gpu_connections):
        middle = x + wide / 2
        yield _line(middle, y + NIC_HEIGHT, middle, below, "#8fb9d6", 3)
    yield _box(x, y, wide, NIC_HEIGHT, "#eef5fa", "#c4dcec" if nic.is_up else BAD, 9)
    yield _text(x + wide / 2, y + 17, nic.name, 12, anchor="middle", bold=True)
    speed = f"{nic.gbit_s} Gbit/s" if nic.gbit_s else nic.link
    what = speed if nic.is_up else "down"
    yield _text(x + wide / 2, y + 32, what, 11, FAINT if nic.is_up else BAD, anchor="middle")


def _gpu(layout: node_layout.NodeLayout, at: int, x: float, y: float, wide: float) -> Iterator[str]:
    place = layout.gpus[at]
    gpu = place.gpu
    letter = place.letters[:1]
    fill = colour(letter) if letter else "#eef0f4"
    ink = "#ffffff" if letter else INK
    edge = BAD if gpu.problems else (fill if letter else LINE)
    title = f"<title>{escape(' · '.join((gpu.uuid, gpu.pci, *gpu.problems)))}</title>"
    yield (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{GPU_HEIGHT}" rx="10" '
        f'fill="{fill}" stroke="{edge}" stroke-width="{4 if gpu.problems else 1.2}">{title}</rect>'
    )
    middle = x + wide / 2
    yield _text(middle, y + 25, f"GPU {gpu.index}", 15, ink, anchor="middle", bold=True)
    more = node_layout.format_bytes(gpu.memory_bytes) if gpu.memory_bytes else ""
    if gpu.slices:
        more = f"{len(gpu.slices)} MIG"
    yield _text(middle, y + 43, more, 12, ink, anchor="middle")
    state = place.letters if letter else "free"
    if gpu.problems:
        state = f"{place.letters} faulty".strip()
    yield _text(middle, y + 63, state, 13, BAD if gpu.problems else ink, anchor="middle", bold=True)


def _nvlinks(
    layout: node_layout.NodeLayout, places: dict[int, tuple[float, float]], y: float
) -> tuple[list[str], float]:
    """Direct NVLinks as arcs below the GPUs, NVSwitch links as lines to a bar. Returns the SVG
    elements, and y below them."""
    direct = [
        (one, other, link)
        for one, line in enumerate(layout.links)
        for other, link in enumerate(line[:one])
        if link is not None and link.nvlinks and one in places and other in places
    ]
    switched = [at for at in places if layout.gpus[at].gpu.nvswitch_links]
    parts: list[str] = []
    if switched:
        top = y + 6
        for at in switched:
            x, bottom = places[at]
            parts.append(_line(x, bottom, x, top, NVLINK, 5))
        parts.append(_box(MARGIN, top, WIDTH - 2 * MARGIN, 34, NVLINK, NVLINK, 10))
        counts = sorted({layout.gpus[at].gpu.nvswitch_links for at in switched})
        said = f"NVSwitch  ·  {' or '.join(map(str, counts))} NVLinks from each GPU"
        parts.append(_text(WIDTH / 2, top + 22, said, 14, "#ffffff", anchor="middle", bold=True))
        return parts, top + 34 + GAP
    if not direct:
        return parts, y
    deepest = 0.0
    labels = []
    for one, other, link in direct:
        (x1, y1), (x2, y2) = places[other], places[one]
        depth = 30 + abs(x2 - x1) * 0.14
        low = max(y1, y2)
        deepest = max(deepest, low + depth * 0.75)
        parts.append(
            f'<path d="M {x1:.1f} {y1:.1f} C {x1:.1f} {low + depth:.1f}, {x2:.1f} '
            f'{low + depth:.1f}, {x2:.1f} {y2:.1f}" fill="none" stroke="{NVLINK}" '
            f'stroke-width="{1.5 + 1.5 * link.nvlinks:.1f}" stroke-opacity="0.75"'
            f"{' stroke-dasharray=' + chr(34) + '6 4' + chr(34) if link.differs else ''}/>"
        )
        if len(direct) <= 8:
            middle = (x1 + x2) / 2
            labels.append(_box(middle - 19, low + depth * 0.75 - 10, 38, 19, PAPER, NVLINK, 9))
            labels.append(
                _text(
                    middle,
                    low + depth * 0.75 + 4,
                    link.label,
                    11,
                    NVLINK,
                    anchor="middle",
                    bold=True,
                )
            )
    return [*parts, *labels], max(y, deepest + 14) + GAP


def _table_width(layout: node_layout.NodeLayout) -> float:
    return 84 + 56 * len(layout.gpus) + 40 if _has_table(layout) else 0


def _has_table(layout: node_layout.NodeLayout) -> bool:
    return len(layout.gpus) > 1 or bool(layout.gpus and layout.nics)


def _table(layout: node_layout.NodeLayout, y: float) -> tuple[list[str], float]:
    """The table of connections between GPUs and NICs. Returns the SVG elements, and y below
    them."""
    if not _has_table(layout):
        return [], y
    parts = [_text(MARGIN, y + 14, "Connections between devices", 15, bold=True)]
    y += 30
    left = MARGIN + 84
    for place, gpu in enumerate(layout.gpus):
        label = f"GPU {gpu.gpu.index}"
        parts.append(_text(left + place * 56 + 26, y + 8, label, 11, FAINT, anchor="middle"))
    y += 16
    for one, line in enumerate(layout.links):
        parts.append(_text(MARGIN, y + 18, f"GPU {layout.gpus[one].gpu.index}", 12))
        for place, link in enumerate(line):
            parts += _link_label(left + place * 56, y, "" if link is None else link.label, link)
        y += 28
    for nic in layout.nics:
        if nic.gpu_connections:
            parts.append(_text(MARGIN, y + 18, nic.name, 12))
            for place, way in enumerate(nic.gpu_connections[: len(layout.gpus)]):
                parts += _link_label(left + place * 56, y, way, None)
            y += 28
    if any(link is not None and link.differs for line in layout.links for link in line):
        y += 16
        parts.append(
            _text(MARGIN, y, "dashed, *: the two ends report different numbers of NVLinks", 12, BAD)
        )
    return parts, y + 12


def _link_label(x: float, y: float, label: str, link: node_layout.Link | None) -> Iterator[str]:
    if not label:
        return
    is_nvlink = link is not None and link.nvlinks > 0
    fill = "#d7ecbf" if is_nvlink else WAYS.get(label, "#f1f2f5")
    yield _box(x, y, 52, 24, fill, "none", 6)
    star = "*" if link is not None and link.differs else ""
    ink = "#2f5c00" if is_nvlink else INK
    yield _text(x + 26, y + 16, label + star, 11, ink, anchor="middle", bold=is_nvlink)


def _legend(layout: node_layout.NodeLayout, y: float, left: float) -> tuple[list[str], float]:
    """The allocations, to the right of the table. Returns the SVG elements, and y below them."""
    x = MARGIN + left
    parts = [_text(x, y + 14, "Held by", 15, bold=True)]
    y += 30
    for holder in layout.holders:
        fill = colour(holder.letter)
        parts.append(_box(x, y, 24, 24, fill, fill, 6))
        parts.append(
            _text(x + 12, y + 17, holder.letter, 13, "#ffffff", anchor="middle", bold=True)
        )
        parts.append(_text(x + 36, y + 11, holder.name, 13, bold=True))
        held = [f"CPUs {holder.cpus}"] if holder.cpus else []
        if holder.gpus:
            named = ", ".join(str(layout.gpus[at].gpu.index) for at in holder.gpus)
            held.append(f"GPU {named}")
        elif holder.devices:
            held.append(", ".join(holder.devices))
        held += holder.memory
        parts.append(_text(x + 36, y + 27, "  ·  ".join(held), 12, FAINT))
        y += 42
    if not layout.holders:
        parts.append(_text(x, y + 12, "no pod has exclusive CPUs, memory or devices", 13, FAINT))
        y += 30
    for mark, said in (
        (node_layout.FREE, "free"),
        (node_layout.RESERVED, "reserved for the system"),
    ):
        fill, _ = _shade(mark)
        parts.append(_box(x, y, 24, 24, fill, "none", 6))
        parts.append(_text(x + 36, y + 17, said, 13, FAINT))
        y += 32
    return parts, y


def colour(letter: str) -> str:
    """The fill colour of the pod with this letter."""
    return COLOURS[node_layout.LETTERS.find(letter) % len(COLOURS)]


def _box(x: float, y: float, wide: float, high: float, fill: str, edge: str, radius: int) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="{radius}" '
        f'fill="{fill}" stroke="{edge}" stroke-width="1.2"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour_: str, wide: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour_}" '
        f'stroke-width="{wide}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    size: int,
    colour_: str = INK,
    *,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour_}" '
        f'text-anchor="{anchor}"{weight} xml:space="preserve">{escape(text)}</text>'
    )
