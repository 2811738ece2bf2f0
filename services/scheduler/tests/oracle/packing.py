"""Packing by its rules in the simplest form: no columns, no caches, slow.

The kernels must give the same placements, GPU by GPU.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from stromboli.scheduler.core.packing import policies, simulation, trace


@dataclass
class Node:
    cpu: int
    memory: int
    gpus: list[int]
    model: int
    kinds: Counter[int] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        return sum(self.gpus)


@dataclass
class Usual:
    """A typical pod and its number."""

    shape: trace.Shape
    count: int


def runs_on(shape: trace.Shape, node: Node) -> bool:
    fitting = [left for left in node.gpus if left >= shape.gpu_milli]
    return (
        node.cpu >= shape.cpu_milli
        and node.memory >= shape.memory_mib
        and bool(shape.models >> node.model & 1)
        and (shape.gpus == 0 or len(fitting) >= shape.gpus)
    )


def fragmented(node: Node, usual: list[Usual]) -> int:
    """Fragmentation as defined in FGD's paper, times the number of typical pods."""
    total = 0
    for each in usual:
        if each.shape.gpus == 0 or not runs_on(each.shape, node):
            total += each.count * node.left
        else:
            total += each.count * sum(g for g in node.gpus if g < each.shape.gpu_milli)
    return total


def stranded(node: Node, usual: list[Usual]) -> int:
    """What is left after pods of one kind are placed until none fits, over all kinds."""
    total = 0
    for each in usual:
        trial = Node(node.cpu, node.memory, list(node.gpus), node.model)
        while each.shape.gpus and runs_on(each.shape, trial):
            put(trial, each.shape, tightest(trial, each.shape))
        total += each.count * trial.left
    return total


def tightest(node: Node, shape: trace.Shape) -> int:
    if shape.gpus != 1:
        return -1
    fitting = [(left, place) for place, left in enumerate(node.gpus) if left >= shape.gpu_milli]
    return min(fitting)[1]


def put(node: Node, shape: trace.Shape, place: int) -> set[int]:
    """Take what a pod requests; returns its GPUs."""
    node.cpu -= shape.cpu_milli
    node.memory -= shape.memory_mib
    idle = [at for at, left in enumerate(node.gpus) if left == 1000]
    taken = {place} if shape.gpus == 1 else set(idle[: shape.gpus])
    for at in taken:
        node.gpus[at] -= shape.gpu_milli
    if shape.gpus:
        node.kinds[0 if shape.gpu_milli < 1000 else shape.gpus] += 1
    return taken


def copied(node: Node) -> Node:
    return Node(node.cpu, node.memory, list(node.gpus), node.model, Counter(node.kinds))


Score = tuple[Fraction | int, ...]


def score(
    code: int, node: Node, shape: trace.Shape, usual: list[Usual], opening: int
) -> tuple[Score, int]:
    """The higher tuple wins; with the GPU for a pod that requests one."""
    if code in (policies.FGD, policies.STRANDED_TIES, policies.STRANDED_SUM):
        places = range(len(node.gpus)) if shape.gpus == 1 else [-1]
        found: list[tuple[Score, int]] = []
        for place in places:
            if shape.gpus == 1 and node.gpus[place] < shape.gpu_milli:
                continue
            after = copied(node)
            put(after, shape, place)
            pods = sum(each.count for each in usual)
            gain = fragmented(node, usual) - fragmented(after, usual)
            further = stranded(node, usual) - stranded(after, usual)
            rounded = sigmoid_hundredths(Fraction(gain, pods))
            room = after.cpu + 16 * after.left
            bonus = opening * (1000 - shape.gpu_milli) if node.gpus[place] == 1000 else 0
            if shape.gpus != 1:
                bonus = 0
            key: Score
            if code == policies.FGD:
                key = (rounded, -node.left)
            elif code == policies.STRANDED_TIES:
                key = (rounded, math.floor(Fraction(further, 100 * pods)))
            else:
                parts = pods * 2560 * bonus // 1000
                key = ((gain + further) * 2560 - pods * (room // 10) + parts,)
            found.append((key, place))
        best = max(key for key, _ in found)
        return best, next(place for key, place in found if key == best)
    return (by_node(code, node, shape),), tightest(node, shape)


def sigmoid_hundredths(gain_milli: Fraction) -> int:
    return sum(
        math.floor(gain_milli) >= math.ceil(1000 * math.log(step / (100 - step)))
        for step in range(1, 100)
    )


def by_node(code: int, node: Node, shape: trace.Shape) -> int:
    requested = shape.gpus * shape.gpu_milli
    if code == policies.DOT_PRODUCT:
        cpu = Fraction(node.cpu * shape.cpu_milli, 128_000**2)
        gpu = Fraction(node.left * requested, 8000**2)
        return math.floor(100 * (1 - (cpu + gpu) / 2))
    if code == policies.BEST_FIT:
        cpu = Fraction(node.cpu - shape.cpu_milli, 128_000)
        gpu = Fraction(node.left - requested, 8000)
        return math.floor(100 * (1 - (cpu + gpu) / 2))
    if code == policies.GPU_PACKING and shape.gpus:
        idle = node.gpus.count(1000)
        if idle == len(node.gpus):
            return max(33 - idle, idle)
        shared = node.gpus[tightest(node, shape)] if shape.gpus == 1 else 1000
        return 100 - shared // 100 if shared < 1000 else max(50 - shape.gpus, 33)
    if code == policies.GPU_CLUSTERING and shape.gpus:
        kind = 0 if shape.gpu_milli < 1000 else shape.gpus
        tier = (3 if len(node.kinds) == 1 else 2) if node.kinds[kind] else 0
        if not +node.kinds:
            tier = 1
        return 25 * tier + 25 * (8000 - node.left) // 8000
    return 0


def place(
    nodes: trace.Nodes,
    pods: trace.Pods,
    policy: policies.Policy,
    arrivals: trace.Integers,
    luck: simulation.RandomDraws,
) -> list[tuple[int, set[int]]]:
    """Node (-1: dropped) and GPUs of each arrival."""
    code, opening = policies.kernel_for(policy, nodes, pods)
    usual = popular(pods, policy.popular_percent)
    cluster = [
        Node(int(cpu), int(memory), [int(left) for left in gpus if left >= 0], int(model))
        for cpu, memory, gpus, model in zip(
            nodes.cpu_milli, nodes.memory_mib, nodes.gpu_milli, nodes.model, strict=True
        )
    ]
    answers = []
    for arrival, draws in zip(arrivals, luck.draws, strict=True):
        shape = trace.Shape(*pods.shapes[arrival].tolist())
        fitting = [row for row in luck.order.tolist() if runs_on(shape, cluster[row])]
        if not fitting:
            answers.append((-1, set[int]()))
            continue
        rated = [score(code, cluster[row], shape, usual, opening) for row in fitting]
        best = max(key for key, _ in rated)
        row, at = next(
            (row, at) for row, (key, at) in zip(fitting, rated, strict=True) if key == best
        )
        if code == policies.RANDOM:
            row = fitting[int(draws[0] * len(fitting))]
            enough = [g for g, left in enumerate(cluster[row].gpus) if left >= shape.gpu_milli]
            at = enough[int(draws[1] * len(enough))] if shape.gpus == 1 else -1
        answers.append((row, put(cluster[row], shape, at)))
    return answers


def popular(pods: trace.Pods, percent: int) -> list[Usual]:
    ranked = sorted(enumerate(pods.counts.tolist()), key=lambda pair: (-pair[1], pair[0]))
    chosen: list[Usual] = []
    for row, count in ranked:
        if sum(each.count for each in chosen) * 100 >= percent * len(pods.shape_of):
            break
        chosen.append(Usual(trace.Shape(*pods.shapes[row].tolist()), count))
    return chosen
