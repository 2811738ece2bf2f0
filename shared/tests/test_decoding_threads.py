"""Threads decode and convert related types: those of the services, and those of a program that uses
the Python client. Each program here runs as a process, because what it looks for ends one."""

import subprocess
import sys

import pytest

START = """
import sys, threading
import msgspec
from stromboli.shared import decoding
from stromboli.shared.messages import base

sys.setswitchinterval(1e-6)
FIELDS = [("a", int), ("b", str), ("c", list[int])]
VALUE = {"x": {f"f{k}": {"a": 1, "b": "s", "c": [1]} for k in range(20)}}
JSON, PACKED = msgspec.json.encode(VALUE), msgspec.msgpack.encode(VALUE)


def together(works):
    barrier = threading.Barrier(len(works))

    def run(work):
        barrier.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def forms(count):
    parts = [(f"f{k}", msgspec.defstruct(f"Part{k}", FIELDS)) for k in range(20)]
    shared = msgspec.defstruct("Shared", parts)
    return [msgspec.defstruct(f"Message{k}", [("x", shared)]) for k in range(count)]

"""
MESSAGES = """
for number in range(150):
    names = f"one.{number}", f"two.{number}"
    for name, form in zip(names, forms(2), strict=True):
        base.register(name)(form)
    together([lambda name=name: base.decode(name, JSON) for name in names])
print("decoded")
"""
EVERY_WAY = """
for number in range(60):
    a, b, c, d = forms(4)
    together(
        [
            lambda: decoding.decoder_of(a).decode(JSON),
            lambda: decoding.from_json(JSON, b | None),
            lambda: decoding.msgpack_decoder_of(c).decode(PACKED),
            lambda: decoding.convert(VALUE, d),
        ]
        * 2
    )
print("decoded")
"""
CLIENT = """
import importlib

PROBLEM = b'{"violations": [{"path": "a", "reason": "b"}]}'
BULK = (
    b'{"counts": {}, "items": [{"index": 1, "result": "refused", '
    b'"violations": [{"path": "a", "reason": "b"}]}]}'
)
TASK = b'{"task": "a", "index": 1, "attempt": 1, "pod": "p", "podUid": "u", "state": "Running"}'
TASKS = b'{"job": "a", "uid": "u", "tasks": [' + b", ".join([TASK] * 9) + b"]}"
PENDING = (
    b'{"job": "a", "phase": "Pending", "podGroup": "g", "explained": {"namespace": "n", '
    b'"name": "g", "uid": "u", "at": "2026-01-01T00:00:00Z", "reasons": []}}'
)
APPLIED = b'[{"kind": "Job", "namespace": "n", "name": "a", "result": "created", "object": {}}]'
JOB = b'{"metadata": {"name": "a"}, "spec": {"tasks": []}}'


def answer(module, *arguments):
    try:
        module.answer(*arguments)
    except module.errors.ResponseError:
        pass  # the server's refusal, decoded
    except msgspec.DecodeError:
        pass  # fields that this program leaves out


def read(call, raw):
    try:
        call.read(raw)
    except msgspec.DecodeError:
        pass


for number in range(40):
    for name in [name for name in sys.modules if name.startswith("stromboli.")]:
        del sys.modules[name]  # a program has one first time only
    calls = importlib.import_module("stromboli.client.operations.calls")
    kinds = importlib.import_module("stromboli.shared.api.kinds")
    together(
        [
            lambda: answer(calls, calls.job("n", "a"), 422, calls.PROBLEM, PROBLEM),
            lambda: read(calls.bulk([]), BULK),
            lambda: read(calls.tasks("n", "a"), TASKS),
            lambda: read(calls.apply([]), APPLIED),
            lambda: read(calls.explanation("n", "a"), PENDING),
            lambda: read(calls.watch_explanation("n", "a"), PENDING),
            lambda: kinds.JOBS.decode(JOB),
            lambda: kinds.PODS.decode(b'{"metadata": {"name": "a"}, "spec": {"containers": []}}'),
        ]
        * 2
    )
print("decoded")
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(MESSAGES, id="messages"),
        pytest.param(EVERY_WAY, id="every-way"),
        pytest.param(CLIENT, id="client"),
    ],
)
def test_threads_that_use_related_types_for_the_first_time_do_not_crash(program: str) -> None:
    """msgspec publishes what it knows of a Struct before it is complete: another thread that reads
    it ends the process with a segmentation fault."""
    ran = subprocess.run(
        [sys.executable, "-c", START + program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "decoded\n"), ran.stderr
