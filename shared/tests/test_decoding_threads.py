"""Messages are decoded by several threads: the scheduler's, and that of the event loop."""

import subprocess
import sys

PROGRAM = """
import sys, threading
import msgspec
from stromboli.shared.messages import base

sys.setswitchinterval(1e-6)
FIELDS = [("a", int), ("b", str), ("c", list[int])]
RAW = msgspec.json.encode({"x": {f"f{k}": {"a": 1, "b": "s", "c": [1]} for k in range(20)}})


def decode(name, barrier):
    barrier.wait()
    base.decode(name, RAW)


for number in range(150):
    parts = [(f"f{k}", msgspec.defstruct(f"Part{k}", FIELDS)) for k in range(20)]
    shared = msgspec.defstruct("Shared", parts)
    barrier = threading.Barrier(2)
    threads = []
    for name in (f"one.{number}", f"two.{number}"):
        base.register(name)(msgspec.defstruct("Message", [("x", shared)]))
        threads.append(threading.Thread(target=decode, args=(name, barrier)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("decoded")
"""


def test_threads_that_decode_related_types_for_the_first_time_do_not_crash() -> None:
    """msgspec publishes what it knows of a Struct before it is complete: another thread that reads
    it ends the process with a segmentation fault."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "decoded\n"), ran.stderr
