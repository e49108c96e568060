"""Copies an object to every node of a Ray cluster: with rdmc, and for comparison with ray.put and ray.get.

    python ray_object.py [--address ADDRESS] [--nodes N] [--mib N] [--repeats N]

Without an address it starts a cluster on this machine, with a raylet and an object store for each node.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import numpy
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import rdmc

TIMEOUT = 120.0


@ray.remote(num_cpus=0)
class Table:
    """A key-value table through which members find each other."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self._values[key] = value

    def get(self, key: str) -> str | None:
        return self._values.get(key)


class Store:
    """A store for rdmc.Group.from_env: `set`, and a `get` that waits."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def set(self, key: str, value: str) -> None:
        ray.get(self._table.set.remote(key, value))

    def get(self, key: str) -> str:
        until = time.monotonic() + TIMEOUT
        while (value := ray.get(self._table.get.remote(key))) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"no member has set {key}")
            time.sleep(0.01)
        return str(value)


@ray.remote(num_cpus=1)
class Member:
    """The member on a node, with its copy of the object."""

    def __init__(self, rank: int, size: int, table: Any, length: int) -> None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), RDMC_IP=ray.util.get_node_ip_address())
        self._group = rdmc.Group.from_env(Store(table), timeout=TIMEOUT)
        self._array = numpy.zeros(length, dtype="u1")

    def fill(self, seed: int) -> int:
        """Fills the object with new contents, at the root, and returns the sum of its bytes."""
        self._array[:] = numpy.random.default_rng(seed).integers(0, 256, self._array.size, dtype="u1")
        return self.total()

    def total(self) -> int:
        """Returns the sum of all bytes of this copy."""
        return int(self._array.sum(dtype="u8"))

    def broadcast(self) -> None:
        """Returns once all members have the object."""
        self._group.broadcast(self._array, root=0)
        self._group.barrier()

    def put(self) -> list[Any]:
        """Puts the object into Ray's store. Returns it in a list, so that Ray does not fetch it when the list is an argument."""
        return [ray.put(self._array)]

    def get(self, objects: list[Any]) -> None:
        """Returns once the object is in this node's store."""
        self._got = ray.get(objects[0])

    def drop(self) -> int:
        """Releases Ray's object, and returns the sum of its bytes."""
        total = int(self._got.sum(dtype="u8"))
        del self._got
        return total

    def close(self) -> None:
        self._group.close()


def members_on_all_nodes(length: int) -> list[Any]:
    """Creates an actor on each node, and returns them once all have joined."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    table = Table.remote()
    members = [
        Member.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            rank, len(nodes), table, length
        )
        for rank, node in enumerate(nodes)
    ]
    ray.get([member.total.remote() for member in members])
    return members


def by_rdmc(members: list[Any]) -> float:
    """Returns the seconds until all nodes have the object."""
    start = time.monotonic()
    ray.get([member.broadcast.remote() for member in members])
    return time.monotonic() - start


def by_ray(members: list[Any]) -> float:
    """Returns the seconds until all nodes have the object."""
    start = time.monotonic()
    objects = ray.get(members[0].put.remote())
    ray.get([member.get.remote(objects) for member in members])
    return time.monotonic() - start


def run(length: int, repeats: int) -> None:
    """Measures both in turn, and compares all copies."""
    members = members_on_all_nodes(length)
    times: dict[str, list[float]] = {"rdmc": [], "ray.put and ray.get": []}
    for repeat in range(repeats + 1):
        total = ray.get(members[0].fill.remote(repeat))
        measured = {"rdmc": by_rdmc(members)}
        assert ray.get([member.total.remote() for member in members]) == [total] * len(members)
        measured["ray.put and ray.get"] = by_ray(members)
        assert ray.get([member.drop.remote() for member in members]) == [total] * len(members)
        # The first run of each opens connections.
        if repeat > 0:
            for name, seconds in measured.items():
                times[name].append(seconds)
    ray.get([member.close.remote() for member in members])
    print(f"{length >> 20} MiB to {len(members)} nodes, median of {repeats}:")
    for name, all_seconds in times.items():
        middle = statistics.median(all_seconds)
        print(f"{name}: {middle:.3f} s ({min(all_seconds):.3f} to {max(all_seconds):.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="address of a running cluster")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    cluster = None
    if args.address is None:
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        for _ in range(args.nodes):
            cluster.add_node(num_cpus=1, object_store_memory=4 * args.mib << 20)
    ray.init(args.address or cluster.address, log_to_driver=True)
    try:
        run(args.mib << 20, args.repeats)
    finally:
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()


if __name__ == "__main__":
    main()
