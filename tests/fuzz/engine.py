"""The loop of every fuzz target: mutate, call, and report what must not happen, with its input."""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import msgspec

SECONDS = float(os.environ.get("STROM_FUZZ_S", "0"))
"""How long each target runs; 0: for a fixed number of inputs, as in ``make test``."""
TIMEOUT_S = 0 if SECONDS else 300
"""When a test is stopped; 0: never, as its duration was chosen."""
SEED = int(os.environ.get("STROM_FUZZ_SEED", "20261122"))
INPUTS = 150
"""Inputs of a target in the short form: a second or two."""
LONGEST_S = 1.0
"""CPU seconds that one input may cost."""
CONFIRMATIONS = 2
"""How often a slow input is repeated: the CPU time of a process includes its other threads and the
garbage collector, an input that is really slow is slow each time."""
Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]


class FindingError(AssertionError):
    """An input that a target must survive and did not."""


class Result(msgspec.Struct):
    """The result of a run of one target. ``outcomes``: how often inputs were accepted or rejected,
    and how.
    """

    target: str
    inputs: int = 0
    longest_s: float = 0.0
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)

    def __str__(self) -> str:
        reported = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        return f"{self.target}: {self.inputs} inputs, longest {self.longest_s:.3f} s; {reported}"


def run(
    target: str,
    corpus: Sequence[bytes],
    call: Callable[[bytes], str],
    mutate: Mutate,
    *,
    seconds: float = SECONDS,
    inputs: int = INPUTS,
    clock: Callable[[], float] = time.process_time,
) -> Result:
    """Feed mutations of the corpus to ``call``, which returns the outcome in a word.

    Raises FindingError when it raises, or takes longer than ``LONGEST_S`` by ``clock``.
    """
    random = Random(f"{SEED} {target}")
    result = Result(target)
    pool = list(corpus)
    until = time.monotonic() + seconds
    for data in corpus:
        _one(result, data, call, clock)
    while time.monotonic() < until if seconds else result.inputs < inputs:
        data = mutate(random, random.choice(pool), corpus)
        before = len(result.outcomes)
        _one(result, data, call, clock)
        if len(result.outcomes) > before and len(data) < 20_000 and len(pool) < 500:
            pool.append(data)  # a new outcome: continue from there
    return result


def report(result: Result) -> None:
    """Append the result to the file that ``STROM_FUZZ_REPORT`` names."""
    if name := os.environ.get("STROM_FUZZ_REPORT"):
        with open(name, "a", encoding="utf-8") as file:
            file.write(f"{result}\n")


def _one(
    result: Result, data: bytes, call: Callable[[bytes], str], clock: Callable[[], float]
) -> None:
    began = clock()
    try:
        outcome = call(data)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise FindingError(f"{result.target}: {what}: {_shown(data)}") from error
    took = clock() - began
    for _ in range(CONFIRMATIONS):
        if took <= LONGEST_S:
            break
        began = clock()
        call(data)
        took = min(took, clock() - began)
    result.inputs += 1
    result.longest_s = max(result.longest_s, took)
    result.outcomes[outcome] += 1
    if took > LONGEST_S:
        raise FindingError(f"{result.target}: {took:.2f} s ({outcome}): {_shown(data)}")


def _shown(data: bytes) -> str:
    """Enough of an input to repeat it; a long input is stored in a file."""
    if len(data) <= 2_000:
        return repr(data)
    folder = os.environ.get("STROM_FUZZ_FINDINGS", "/tmp")
    name = f"{folder}/strom-fuzz-{abs(hash(data)):x}"
    with open(name, "wb") as file:
        file.write(data)
    return f"{data[:300]!r}... ({len(data)} bytes, in {name})"
