"""A node's picture for terminals, with Rich."""

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stromboli.cli.render import node_layout as pictures
from stromboli.shared.messages.node_topology import UNKNOWN_CELL

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
"""Of pods in turn; letters tell them apart where there are no colours."""
WAYS = {"PIX": "cyan", "PXB": "cyan", "INTERNAL": "cyan", "PHB": "yellow", "NODE": "yellow"}
CORES_A_ROW = 16


def drawn(seen: pictures.Picture) -> RenderableType:
    """The whole picture."""
    parts: list[RenderableType] = [_head(seen), *(_cell(seen, cell) for cell in seen.cells)]
    if len(seen.gpus) > 1 or (seen.gpus and seen.nics):
        parts.append(_links(seen))
    parts.append(_holders(seen))
    if seen.notes:
        parts.append(Text("\n").join([Text("not known", "bold"), *map(_note, seen.notes)]))
    return Group(*_with_gaps(parts))


def _with_gaps(parts: list[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield part
        if not isinstance(part, Panel):
            yield Text("")


def _head(seen: pictures.Picture) -> Text:
    head = Text.assemble((seen.node, "bold"), "   ", "   ".join(seen.title))
    if seen.kubelet:
        head.append(f"\nkubelet: {seen.kubelet}")
    head.append(f"\n{seen.age}", "bold red" if seen.is_silent else "dim")
    return head


def _cell(seen: pictures.Picture, cell: pictures.Cell) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    if cell.cores:
        grid.add_row("CPUs", Text("\n").join(_cores(cell)))
    if cell.gpus:
        grid.add_row("GPUs", Text("\n").join(_gpu(seen, at) for at in cell.gpus))
    if cell.nics:
        grid.add_row("NICs", Text("\n").join(_nic(seen, at) for at in cell.nics))
    return Panel(grid, title=_cell_title(cell), title_align="left", box=box.ROUNDED)


def _cell_title(cell: pictures.Cell) -> Text:
    if cell.cell.id == UNKNOWN_CELL:
        return Text("of no NUMA node that is known")
    said = [f"NUMA node {cell.cell.id}"]
    if cell.sockets:
        said.append("socket " + ", ".join(map(str, cell.sockets)))
    if cell.cell.memory_bytes:
        said.append(pictures.size(cell.cell.memory_bytes))
    said += [
        f"{pages.free} of {pages.total} pages of {pictures.size(pages.size_bytes)} free"
        for pages in cell.cell.huge_pages
    ]
    return Text(" · ".join(said))


def _cores(cell: pictures.Cell) -> Iterator[Text]:
    """A word is a core, a letter in it a thread."""
    wide = len(str(max(cpu for core in cell.cores for cpu, _ in core)))
    for start in range(0, len(cell.cores), CORES_A_ROW):
        row = cell.cores[start : start + CORES_A_ROW]
        line = Text(f"{row[0][0][0]:>{wide}}  ", "dim")
        for place, core in enumerate(row):
            for _, mark in core:
                line.append(mark, style(mark))
            line.append("  " if place % 4 == 3 else " ")
        yield line


def _gpu(seen: pictures.Picture, at: int) -> Text:
    place = seen.gpus[at]
    line = Text(f"{place.gpu.index:>2} ", "bold")
    for mark in place.letters or pictures.FREE:
        line.append(mark, style(mark))
    line.append(f"  {pictures.short(place.gpu.model)}  {pictures.size(place.gpu.memory_bytes)}")
    line.append(f"  {place.gpu.pci}", "dim")
    if place.gpu.slices:
        profiles = [part.profile for part in place.gpu.slices]
        counted = (f"{profiles.count(name)} × {name}" for name in dict.fromkeys(profiles))
        line.append(f"  MIG: {', '.join(counted)}")
    for problem in place.gpu.problems:
        line.append(f"\n     {problem}", "bold red")
    return line


def _nic(seen: pictures.Picture, at: int) -> Text:
    nic = seen.nics[at]
    line = Text(f"{nic.name}", "bold")
    line.append(f"  {nic.rdma}" if nic.rdma not in ("", nic.name) else "")
    line.append(f"  {nic.link}" if nic.link else "")
    line.append(f" {nic.gbit_s} Gbit/s" if nic.gbit_s else "")
    if not nic.is_up:
        line.append("  down", "bold red")
    near = [
        f"GPU {seen.gpus[place].gpu.index}"
        for place, way in enumerate(nic.ways)
        if way in ("PIX", "PXB") and place < len(seen.gpus)
    ]
    line.append(f"  beside {', '.join(near)}" if near else "", "cyan")
    return line


def _links(seen: pictures.Picture) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    parts: list[RenderableType] = [Text("ways between GPUs and network cards", "bold"), table]
    table.add_column("")
    for place in seen.gpus:
        table.add_column(f"GPU{place.gpu.index}", justify="center", no_wrap=True)
    for one, place in enumerate(seen.gpus):
        cells = [_way(link) for link in seen.links[one]]
        table.add_row(Text(f"GPU{place.gpu.index}", "bold"), *cells)
    for nic in seen.nics:
        if nic.ways:
            cells = [Text(way, WAYS.get(way, "dim")) for way in nic.ways[: len(seen.gpus)]]
            table.add_row(Text(nic.name, "bold"), *cells)
    if any(link is not None and link.differs for line in seen.links for link in line):
        parts.append(Text("* the two ends tell different numbers of NVLinks: one may be broken"))
    return Group(*parts)


def _way(link: pictures.Link | None) -> Text:
    if link is None:
        return Text("-", "dim")
    colour = "bold green" if link.nvlinks else WAYS.get(link.label, "dim")
    return Text(link.label + ("*" if link.differs else ""), colour)


def _holders(seen: pictures.Picture) -> RenderableType:
    marks = f"{pictures.FREE} free   {pictures.RESERVED} reserved"
    if not seen.holders:
        return Text(f"no pod holds anything alone   {marks}", "dim")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in ("", "pod", "CPUs", "GPUs", "devices", "memory"):
        table.add_column(header)
    for holder in seen.holders:
        table.add_row(
            Text(holder.letter, style(holder.letter)),
            holder.name,
            holder.cpus,
            ",".join(str(seen.gpus[at].gpu.index) for at in holder.gpus),
            ", ".join(holder.devices),
            ", ".join(holder.memory),
        )
    return Group(table, Text(marks, "dim"))


def style(mark: str) -> str:
    """The colour of a mark."""
    if mark == pictures.FREE:
        return "dim"
    if mark == pictures.RESERVED:
        return "dim red"
    return f"bold {COLOURS[pictures.LETTERS.find(mark) % len(COLOURS)]}"


def _note(line: str) -> Text:
    return Text(f"  {line}", "yellow")
