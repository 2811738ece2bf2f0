"""Compiled loops: place arrivals one by one, each on the node with the best score.

All arithmetic is on integers, so that the same input gives the same placements on every machine. A
score is a sort key: the highest wins, equal ones are ties. The scores of a node are cached per
shape until the node changes: most shapes arrive again before many nodes have changed.

State of a node: free cpu (milli), free memory (MiB), free milli of each GPU (below 0: no such GPU).
Shapes are rows as ``trace.Shape``.
"""

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.packing import policies, trace
from stromboli.scheduler.core.packing.numba_compiler import compiled

NO_FIT = -(2**62)
"""The score of a node that cannot take the pod."""
LARGEST_CPU_MILLI = 128_000
LARGEST_GPU_MILLI = 8_000
"""Cpu and GPU of the largest node of the published cluster: scores weigh cpu and GPU by their
ratio."""
CPU_PER_GPU_MILLI = LARGEST_CPU_MILLI // LARGEST_GPU_MILLI
SCALE = 2560
"""Parts of one milli in the scores of ``STRANDED_SUM``: 128,000 milli of cpu in best fit are 50."""
STEPS_MILLI = np.ceil(1000 * np.log(np.arange(1, 100) / np.arange(99, 0, -1))).astype(np.int64)
"""The smallest gains in GPU milli for which FGD's score is 1, 2, ... 99."""


@compiled
def free_gpu_milli(gpus: trace.Integers) -> int:
    """Return the free GPU milli of a node, over all its GPUs."""
    total = 0
    for left in gpus:
        total += max(left, 0)
    return total


@compiled
def idle_gpus(gpus: trace.Integers) -> int:
    """Return the number of idle GPUs of a node."""
    count = 0
    for left in gpus:
        if left == 1000:
            count += 1
    return count


@compiled
def fragmented(
    cpu: int, memory: int, gpus: trace.Integers, model: int, mix: policies.PodMix
) -> int:
    """Return FGD's measure: the GPU milli that a pod cannot use, summed over the pods of the mix.

    A pod cannot use GPUs with less left than it requests. A pod without a GPU request, or one that
    does not fit on the node, cannot use any.
    """
    left = free_gpu_milli(gpus)
    if left == 0:
        return 0
    kinds, weights = mix.kinds[model], mix.weights[model]
    total = int(mix.others[model] * left)
    for row in range(len(kinds)):
        if weights[row] == 0:
            break
        kind = kinds[row]
        usable, fitting = 0, 0
        if cpu >= kind[0] and memory >= kind[1]:
            for each in gpus:
                if each >= kind[3]:
                    usable += each
                    fitting += 1
        if fitting < kind[2]:
            usable = 0
        total += weights[row] * (left - usable)
    return total


@compiled
def stranded(cpu: int, memory: int, gpus: trace.Integers, model: int, mix: policies.PodMix) -> int:
    """Return the GPU milli that stay free if the node is filled with pods of one kind only, as many
    as GPUs, cpu and memory allow; summed over the pods of the mix."""
    left = free_gpu_milli(gpus)
    if left == 0:
        return 0
    kinds, weights = mix.kinds[model], mix.weights[model]
    total = int(mix.others[model] * left)
    for row in range(len(kinds)):
        if weights[row] == 0:
            break
        kind = kinds[row]
        many = 0
        if cpu >= kind[0] and memory >= kind[1]:
            if kind[2] == 1:
                for each in gpus:
                    if each >= kind[3]:
                        many += each // kind[3]
            else:
                many = idle_gpus(gpus) // kind[2]
            if kind[0] > 0:
                many = min(many, cpu // kind[0])
            if kind[1] > 0:
                many = min(many, memory // kind[1])
        total += weights[row] * (left - many * kind[2] * kind[3])
    return total


@compiled
def sigmoid_score(gain: int) -> int:
    """Return FGD's score of a gain in milli: 100 / (1 + exp(-gain / 1000)), as an integer."""
    low, high = 0, len(STEPS_MILLI)
    while low < high:
        middle = (low + high) // 2
        if STEPS_MILLI[middle] <= gain:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def best_fit_gpu(gpus: trace.Integers, milli: int) -> int:
    """Return the first of the GPUs with the least free part that suffices, or -1."""
    best, best_place = 1001, -1
    for place in range(len(gpus)):
        if milli <= gpus[place] < best:
            best, best_place = gpus[place], place
    return best_place


@compiled
def fits(cpu: int, memory: int, gpus: trace.Integers, model: int, shape: trace.Integers) -> bool:
    """Return whether a node can take a pod of a shape."""
    if cpu < shape[0] or memory < shape[1] or not shape[4] >> model & 1:
        return False
    if shape[2] == 1:
        return best_fit_gpu(gpus, shape[3]) >= 0
    return bool(idle_gpus(gpus) >= shape[2])


@compiled
def allocate_gpus(gpus: trace.Integers, shape: trace.Integers, place: int) -> int:
    """Take a shape's GPUs from a node: the one at ``place`` for one GPU, else the first idle ones.

    Returns them as bits.
    """
    if shape[2] == 1:
        gpus[place] -= shape[3]
        return 1 << place
    gpu_mask, wanted = 0, shape[2]
    for each in range(len(gpus)):
        if wanted > 0 and gpus[each] == 1000:
            gpus[each] = 0
            wanted -= 1
            gpu_mask |= 1 << each
    return gpu_mask


@compiled
def best_gain(
    policy: int,
    cpu: int,
    memory: int,
    gpus: trace.Integers,
    model: int,
    shape: trace.Integers,
    before: tuple[int, int],
    mix: policies.PodMix,
    opening: int,
) -> tuple[int, int]:
    """Score and GPU of the placement on this node after which least GPU is unusable.

    ``before``: ``fragmented`` and ``stranded`` without the pod, the latter if the policy uses it.
    The criteria, the second as tie-breaker: ``FGD``: hundredths of the gain in fragmented GPU;
    least GPU left on the node. ``STRANDED_TIES``: the same hundredths; the gain in stranded GPU, in
    tenths of a GPU. ``STRANDED_SUM``: the sum of both gains and a tenth of the best-fit score.
    ``opening`` (milli) is the bonus for putting a pod on an idle GPU: in full for a pod that
    requests almost none of it, zero for one that requests all of it.
    """
    best, best_place = NO_FIT, -1
    after = gpus.copy()
    for place in range(len(gpus)):
        if shape[2] == 1:
            if gpus[place] < shape[3]:
                continue
            same = False
            for earlier in range(place):
                same = same or gpus[earlier] == gpus[place]
            if same:
                continue
        after[:] = gpus
        allocate_gpus(after, shape, place)
        left_cpu, left_memory = cpu - shape[0], memory - shape[1]
        gain = before[0] - fragmented(left_cpu, left_memory, after, model, mix)
        if policy == policies.FGD:
            score = sigmoid_score(gain // mix.total) * 2**32 - free_gpu_milli(gpus)
        else:
            further = before[1] - stranded(left_cpu, left_memory, after, model, mix)
            if policy == policies.STRANDED_TIES:
                score = sigmoid_score(gain // mix.total) * 2**20 + further // (100 * mix.total)
            else:
                room = left_cpu + CPU_PER_GPU_MILLI * free_gpu_milli(after)
                score = (gain + further) * SCALE - mix.total * (room // 10)
                if shape[2] == 1 and gpus[place] == 1000:
                    score += mix.total * SCALE * opening * (1000 - shape[3]) // 1000
        if score > best:
            best, best_place = score, place
        if shape[2] != 1:
            break
    return best, best_place


@compiled
def rate(
    policy: int,
    cpu: int,
    memory: int,
    gpus: trace.Integers,
    tasks: trace.Integers,
    shape: trace.Integers,
) -> tuple[int, int]:
    """Return score and GPU of a node by the rules that depend on the node alone.

    ``tasks``: pods on the node by kind: index 0 for a part of a GPU, n for n whole ones.
    """
    place = best_fit_gpu(gpus, shape[3]) if shape[2] == 1 else -1
    left = free_gpu_milli(gpus)
    cpu_after, left_after = cpu - shape[0], left - shape[2] * shape[3]
    score = 0
    if policy == policies.DOT_PRODUCT:
        dot = cpu * shape[0] + CPU_PER_GPU_MILLI**2 * left * shape[2] * shape[3]
        score = 100 * (2 * LARGEST_CPU_MILLI**2 - dot) // (2 * LARGEST_CPU_MILLI**2)
    elif policy == policies.BEST_FIT:
        room = cpu_after + CPU_PER_GPU_MILLI * left_after
        score = 100 * (2 * LARGEST_CPU_MILLI - room) // (2 * LARGEST_CPU_MILLI)
    elif policy == policies.GPU_PACKING and shape[2] > 0:
        idle, owned = idle_gpus(gpus), 0
        for each in gpus:
            owned += 1 if each >= 0 else 0
        if idle == owned:
            score = max(33 - idle, idle)
        elif shape[2] == 1 and gpus[place] < 1000:
            score = 100 - gpus[place] // 100
        else:
            score = max(50 - shape[2], 33)
    elif policy == policies.GPU_CLUSTERING and shape[2] > 0:
        kind = 0 if shape[3] < 1000 else shape[2]
        kinds = 0
        for count in tasks:
            kinds += 1 if count > 0 else 0
        tier = 0
        if tasks[kind] > 0:
            tier = 3 if kinds == 1 else 2
        elif kinds == 0:
            tier = 1
        score = 25 * tier + 25 * (LARGEST_GPU_MILLI - left) // LARGEST_GPU_MILLI
    return score, place


@compiled
def random_fitting_gpu(gpus: trace.Integers, milli: int, draw: float) -> int:
    """Return one of the GPUs with enough left, selected by ``draw`` within [0, 1)."""
    fitting = 0
    for left in gpus:
        if left >= milli:
            fitting += 1
    wanted = int(draw * fitting)
    for place in range(len(gpus)):
        if gpus[place] >= milli:
            if wanted == 0:
                return place
            wanted -= 1
    return -1


@compiled
def place_all(
    policy: int,
    cpu_milli: trace.Integers,
    memory_mib: trace.Integers,
    gpu_milli: trace.Integers,
    model: trace.Integers,
    shapes: trace.Integers,
    arrivals: trace.Integers,
    order: trace.Integers,
    draws: npt.NDArray[np.float64],
    mix: policies.PodMix,
    opening: int,
) -> tuple[trace.Integers, trace.Integers]:
    """Return node (-1: dropped) and GPUs (bits) of each arrival. The state is changed in place.

    ``order``: all rows of nodes; ties go to the first one. ``draws``: arrivals x 2 within [0, 1),
    which select node and GPU for ``RANDOM``.
    """
    count = len(cpu_milli)
    node_of = np.full(len(arrivals), -1, np.int64)
    gpu_bits = np.zeros(len(arrivals), np.int64)
    tasks = np.zeros((count, gpu_milli.shape[1] + 1), np.int64)
    version = np.zeros(count, np.int64)
    scored = np.full((len(shapes), count), -1, np.int64)
    scores = np.zeros((len(shapes), count), np.int64)
    places = np.zeros((len(shapes), count), np.int64)
    measured = np.full(count, -1, np.int64)
    unusable, staying = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for arrival in range(len(arrivals)):
        row = arrivals[arrival]
        shape = shapes[row]
        best, ties = NO_FIT, 0
        for node in order:
            if scored[row, node] != version[node]:
                scored[row, node] = version[node]
                gpus = gpu_milli[node]
                score, place = NO_FIT, -1
                if fits(cpu_milli[node], memory_mib[node], gpus, model[node], shape):
                    if policy in (policies.FGD, policies.STRANDED_TIES, policies.STRANDED_SUM):
                        if measured[node] != version[node]:
                            measured[node] = version[node]
                            state = (cpu_milli[node], memory_mib[node], gpus, model[node])
                            unusable[node] = fragmented(*state, mix)
                            if policy != policies.FGD:
                                staying[node] = stranded(*state, mix)
                        score, place = best_gain(
                            policy,
                            cpu_milli[node],
                            memory_mib[node],
                            gpus,
                            model[node],
                            shape,
                            (unusable[node], staying[node]),
                            mix,
                            opening,
                        )
                    else:
                        score, place = rate(
                            policy, cpu_milli[node], memory_mib[node], gpus, tasks[node], shape
                        )
                scores[row, node], places[row, node] = score, place
            if scores[row, node] > best:
                best, ties = scores[row, node], 1
            elif best > NO_FIT and scores[row, node] == best:
                ties += 1
        if ties == 0:
            continue
        wanted = int(draws[arrival, 0] * ties) if policy == policies.RANDOM else 0
        chosen = -1
        for node in order:
            if scores[row, node] == best:
                if wanted == 0:
                    chosen = node
                    break
                wanted -= 1
        place = places[row, chosen]
        if policy == policies.RANDOM and shape[2] == 1:
            place = random_fitting_gpu(gpu_milli[chosen], shape[3], draws[arrival, 1])
        cpu_milli[chosen] -= shape[0]
        memory_mib[chosen] -= shape[1]
        gpu_bits[arrival] = allocate_gpus(gpu_milli[chosen], shape, place)
        if shape[2] > 0:
            tasks[chosen, 0 if shape[3] < 1000 else shape[2]] += 1
        version[chosen] += 1
        node_of[arrival] = chosen
    return node_of, gpu_bits
