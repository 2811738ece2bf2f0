"""The efficiency of attempts: used divided by reserved resources, as Slurm's ``seff`` computes it.
Pure.

Attempts that were not measured count neither as used nor as reserved. For memory, only the attempt
that used the largest share of its request counts: it determines how much the job must request.
"""

from collections.abc import Sequence

import msgspec

from stromboli.shared.api.views import accounting

MINUTE_S, HOUR_S = 60.0, 3600.0
BYTE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


class Part(msgspec.Struct, frozen=True):
    """The used and the reserved amount of a resource, in the same unit."""

    used: float
    reserved: float

    @property
    def share(self) -> float | None:
        """Used divided by reserved (1.0: all of it); None if nothing was reserved."""
        return self.used / self.reserved if self.reserved else None

    @property
    def percent(self) -> str:
        """The share as text: ``37 %``; empty if nothing was reserved."""
        return "" if self.share is None else f"{self.share:.0%}".replace("%", " %")


class Efficiency(msgspec.Struct, frozen=True):
    """CPU and GPU in seconds, memory in bytes; None if it was not measured."""

    cpu: Part | None = None
    memory: Part | None = None
    gpu: Part | None = None


def of_attempts(attempts: Sequence[accounting.Attempt]) -> Efficiency:
    """The efficiency of one attempt, or of several together."""
    cpu = [(it.used_cpu_seconds, it.cpu_seconds) for it in attempts]
    gpu = [(it.used_gpu_seconds, it.gpu_seconds) for it in attempts]
    memory = [
        Part(it.max_memory_bytes, it.requests.get("memory", 0))
        for it in attempts
        if it.max_memory_bytes is not None
    ]
    return Efficiency(
        cpu=_sum(cpu),
        memory=max(memory, key=lambda it: (it.share or 0.0, it.used), default=None),
        gpu=_sum(gpu),
    )


def of_usage(used: accounting.Usage) -> Efficiency:
    """The efficiency of a group of a usage report; memory is in GiB-seconds."""
    return Efficiency(
        cpu=_measured(used.used_cpu_seconds, used.measured_cpu_seconds),
        memory=_measured(used.used_memory_gib_seconds, used.measured_memory_gib_seconds),
        gpu=_measured(used.used_gpu_seconds, used.measured_gpu_seconds),
    )


def texts(efficiency: Efficiency) -> list[tuple[str, str]]:
    """(name, text) of each measured resource of attempts: ``cpu``, ``1.2 of 4.0 core-hours
    (30 %)``."""
    lines = []
    if efficiency.cpu is not None:
        lines.append(("cpu", _time(efficiency.cpu, "core")))
    if efficiency.memory is not None:
        of = f" of {format_bytes(efficiency.memory.reserved)}" if efficiency.memory.reserved else ""
        most = f"at most {format_bytes(efficiency.memory.used)}{of}"
        lines.append(("memory", most + _in_brackets(efficiency.memory)))
    if efficiency.gpu is not None:
        lines.append(("gpu", _time(efficiency.gpu, "GPU")))
    return lines


def format_bytes(amount: float) -> str:
    """An amount of memory with a unit: ``1.5 GiB``."""
    for unit, name in BYTE_UNITS:
        if amount >= unit:
            return f"{amount / unit:.1f} {name}"
    return f"{amount:.0f} B"


def _measured(used: float, reserved: float) -> Part | None:
    return Part(used, reserved) if used or reserved else None


def _sum(pairs: Sequence[tuple[float | None, float]]) -> Part | None:
    known = [(used, reserved) for used, reserved in pairs if used is not None]
    if not known:
        return None
    return Part(sum(used for used, _ in known), sum(reserved for _, reserved in known))


def _time(part: Part, what: str) -> str:
    most = max(part.used, part.reserved)
    unit_s, name = next(
        (unit_s, name)
        for unit_s, name in ((HOUR_S, "hours"), (MINUTE_S, "minutes"), (1.0, "seconds"))
        if most >= 2 * unit_s or unit_s == 1.0
    )
    of = f" of {part.reserved / unit_s:.1f}" if part.reserved else ""
    return f"{part.used / unit_s:.1f}{of} {what}-{name}{_in_brackets(part)}"


def _in_brackets(part: Part) -> str:
    return f" ({part.percent})" if part.percent else ""
