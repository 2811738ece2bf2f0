"""A Dask computation whose workers are jobs: pi by chunks of random points.

Needs `stromboli-dask` and a server in `STROM_SERVER`, such as that of `strom up --process-nodes 2`.
"""

import random

from dask.distributed import Client

from stromboli.dask import StromCluster, WorkerOptions

CHUNKS, POINTS = 40, 50_000


def points_inside(seed: int) -> int:
    """How many of ``POINTS`` random points of the unit square are inside the unit circle."""
    source = random.Random(seed)  # noqa: S311 - no secret
    return sum(source.random() ** 2 + source.random() ** 2 < 1 for _ in range(POINTS))


if __name__ == "__main__":
    options = WorkerOptions(threads=1, memory="512 MiB")
    with StromCluster(options=options) as cluster, Client(cluster) as client:
        cluster.adapt(minimum=1, maximum=2)
        inside = client.submit(sum, client.map(points_inside, range(CHUNKS))).result()
    print(f"pi is about {4 * inside / (CHUNKS * POINTS):.2f}")
