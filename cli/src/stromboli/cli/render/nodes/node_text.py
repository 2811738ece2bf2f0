"""A node's hardware as text for terminals, and as an image of that text, with Rich."""

import io
import re
from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stromboli.cli.render.nodes import node_layout
from stromboli.shared.messages.node_topology import UNKNOWN_NUMA_NODE, NumaNode

COLOURS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
)
"""Colours of consecutive pods; letters distinguish them without colours."""
WAYS = {"PIX": "cyan", "PXB": "cyan", "INTERNAL": "cyan", "PHB": "yellow", "NODE": "yellow"}
CORES_A_ROW = 16
SVG_COLUMNS = 120
_WEB_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def render_text(layout: node_layout.NodeLayout) -> RenderableType:
    """The layout of a node as text for a terminal."""
    parts: list[RenderableType] = [
        _head(layout),
        *(_cell(layout, numa_node) for numa_node in layout.numa_nodes),
    ]
    if len(layout.gpus) > 1 or (layout.gpus and layout.nics):
        parts.append(_links(layout))
    parts.append(_holders(layout))
    if layout.notes:
        parts.append(Text("\n").join([Text("not known", "bold"), *map(_note, layout.notes)]))
    return Group(*_with_gaps(parts))


def render_svg(layout: node_layout.NodeLayout) -> str:
    """The text as an SVG document. It names no font that a viewer would have to download."""
    console = Console(record=True, file=io.StringIO(), width=SVG_COLUMNS, highlight=False)
    console.print(render_text(layout))
    svg = console.export_svg(title=f"Node {layout.node}", unique_id="node")
    return _WEB_FONTS.sub("", svg)


def _with_gaps(parts: list[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield part
        if not isinstance(part, Panel):
            yield Text("")


def _head(layout: node_layout.NodeLayout) -> Text:
    head = Text.assemble((layout.node, "bold"), "   ", "   ".join(layout.title))
    if layout.kubelet:
        head.append(f"\nkubelet: {layout.kubelet}")
    head.append(f"\n{layout.age}", "bold red" if layout.is_silent else "dim")
    return head


def _cell(layout: node_layout.NodeLayout, numa_node: node_layout.NumaCell) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    if numa_node.cores:
        grid.add_row("CPUs", Text("\n").join(_cores(numa_node)))
    if numa_node.gpus:
        grid.add_row("GPUs", Text("\n").join(_gpu(layout, at) for at in numa_node.gpus))
    if numa_node.nics:
        grid.add_row("NICs", Text("\n").join(_nic(layout, at) for at in numa_node.nics))
    return Panel(grid, title=_cell_title(numa_node), title_align="left", box=box.ROUNDED)


def _cell_title(numa_node: node_layout.NumaCell) -> Text:
    if numa_node.numa_node.id == UNKNOWN_NUMA_NODE:
        return Text("unknown NUMA node")
    parts = [f"NUMA node {numa_node.numa_node.id}"]
    if numa_node.sockets:
        parts.append("socket " + ", ".join(map(str, numa_node.sockets)))
    if numa_node.numa_node.memory_bytes:
        parts.append(_memory(numa_node.numa_node))
    parts += [
        f"{pages.free} of {pages.total} pages of {node_layout.format_bytes(pages.size_bytes)} free"
        for pages in numa_node.numa_node.huge_pages
    ]
    return Text(" · ".join(parts))


def _memory(numa_node: NumaNode) -> str:
    whole = node_layout.format_bytes(numa_node.memory_bytes)
    if numa_node.allocatable_memory_bytes is None:
        return whole
    return f"{whole}, {node_layout.format_bytes(numa_node.allocatable_memory_bytes)} allocatable"


def _cores(numa_node: node_layout.NumaCell) -> Iterator[Text]:
    """One word per core, one letter per thread."""
    wide = len(str(max(cpu for core in numa_node.cores for cpu, _ in core)))
    for start in range(0, len(numa_node.cores), CORES_A_ROW):
        row = numa_node.cores[start : start + CORES_A_ROW]
        line = Text(f"{row[0][0][0]:>{wide}}  ", "dim")
        for place, core in enumerate(row):
            for _, mark in core:
                line.append(mark, style(mark))
            line.append("  " if place % 4 == 3 else " ")
        yield line


def _gpu(layout: node_layout.NodeLayout, at: int) -> Text:
    place = layout.gpus[at]
    line = Text(f"{place.gpu.index:>2} ", "bold")
    for mark in place.letters or node_layout.FREE:
        line.append(mark, style(mark))
    line.append(
        f"  {node_layout.short_model(place.gpu.model)}"
        f"  {node_layout.format_bytes(place.gpu.memory_bytes)}"
    )
    line.append(f"  {place.gpu.pci}", "dim")
    if place.gpu.slices:
        profiles = [part.profile for part in place.gpu.slices]
        counted = (f"{profiles.count(name)} × {name}" for name in dict.fromkeys(profiles))
        line.append(f"  MIG: {', '.join(counted)}")
    for problem in place.gpu.problems:
        line.append(f"\n     {problem}", "bold red")
    return line


def _nic(layout: node_layout.NodeLayout, at: int) -> Text:
    nic = layout.nics[at]
    line = Text(f"{nic.name}", "bold")
    line.append(f"  {nic.rdma}" if nic.rdma not in ("", nic.name) else "")
    line.append(f"  {nic.link}" if nic.link else "")
    line.append(f" {nic.gbit_s} Gbit/s" if nic.gbit_s else "")
    if not nic.is_up:
        line.append("  down", "bold red")
    near = [
        f"GPU {layout.gpus[place].gpu.index}"
        for place, way in enumerate(nic.gpu_connections)
        if way in ("PIX", "PXB") and place < len(layout.gpus)
    ]
    line.append(f"  beside {', '.join(near)}" if near else "", "cyan")
    return line


def _links(layout: node_layout.NodeLayout) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    parts: list[RenderableType] = [
        Text("connections between GPUs and network cards", "bold"),
        table,
    ]
    table.add_column("")
    for place in layout.gpus:
        table.add_column(f"GPU{place.gpu.index}", justify="center", no_wrap=True)
    for one, place in enumerate(layout.gpus):
        numa_nodes = [_link_label(link) for link in layout.links[one]]
        table.add_row(Text(f"GPU{place.gpu.index}", "bold"), *numa_nodes)
    for nic in layout.nics:
        if nic.gpu_connections:
            numa_nodes = [
                Text(way, WAYS.get(way, "dim")) for way in nic.gpu_connections[: len(layout.gpus)]
            ]
            table.add_row(Text(nic.name, "bold"), *numa_nodes)
    if any(link is not None and link.differs for line in layout.links for link in line):
        parts.append(Text("* the two ends report different numbers of NVLinks: one may be broken"))
    return Group(*parts)


def _link_label(link: node_layout.Link | None) -> Text:
    if link is None:
        return Text("-", "dim")
    colour = "bold green" if link.nvlinks else WAYS.get(link.label, "dim")
    return Text(link.label + ("*" if link.differs else ""), colour)


def _holders(layout: node_layout.NodeLayout) -> RenderableType:
    marks = f"{node_layout.FREE} free   {node_layout.RESERVED} reserved"
    if not layout.holders:
        return Text(f"no pod has exclusive CPUs, memory or devices   {marks}", "dim")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in ("", "pod", "CPUs", "GPUs", "devices", "memory"):
        table.add_column(header)
    for holder in layout.holders:
        table.add_row(
            Text(holder.letter, style(holder.letter)),
            holder.name,
            holder.cpus,
            ",".join(str(layout.gpus[at].gpu.index) for at in holder.gpus),
            ", ".join(holder.devices),
            ", ".join(holder.memory),
        )
    return Group(table, Text(marks, "dim"))


def style(mark: str) -> str:
    """The colour of a mark."""
    if mark == node_layout.FREE:
        return "dim"
    if mark == node_layout.RESERVED:
        return "dim red"
    return f"bold {COLOURS[node_layout.LETTERS.find(mark) % len(COLOURS)]}"


def _note(line: str) -> Text:
    return Text(f"  {line}", "yellow")
