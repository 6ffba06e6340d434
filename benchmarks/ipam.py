"""What the pure core costs: 16 addresses out of subnets of every size, and a pod's part of the node's pool.

Run by `make bench-ipam`. The promise: a batch from a /16 that is 90 % full in under 50 µs, and no dearer in a
/8 than in a /24 (at most twice: these are microseconds). Beside it, in the same run and in turn, as many
additions to a plain `set` of the addresses' texts: the least that any record of them could cost. Counted is
CPU time.

A subnet is 90 % full at random places, seeded; of one too large to fill (/12, /8, IPv6), its first 16 pages.
Before a batch is timed, 16 addresses are freed at random: the subnet stays as full as it was.
"""

import gc
import sys
import time
from random import Random
from statistics import median

from subnetes.ipam.addresses import PAGE, Addresses, AddressSpace
from subnetes.ipam.pool import Assigned, Freed, Granted, Holder, Pool, apply, replay

BATCH, ROUNDS, WARM_UP = 16, 400, 20
FULLNESS = 0.9
FILLED = 16 * PAGE  # addresses of a large space that take part
SUBNETS = ("10.0.0.0/24", "10.0.0.0/20", "10.0.0.0/16", "10.0.0.0/12", "10.0.0.0/8", "fd00::/64")
PROMISED = "10.0.0.0/16"
MOST_MICROSECONDS = 50.0
MOST_GROWTH = 2.0
POOL = 250
MOST_MICROSECONDS_A_POD = 50.0


def filled(cidr: str, random: Random) -> tuple[Addresses, list[str]]:
    space = AddressSpace.parse(cidr)
    addresses = Addresses(space)
    candidates = [offset for offset in range(min(space.size, FILLED)) if space.may_give(offset)]
    in_use = [space.address(at) for at in random.sample(candidates, int(FULLNESS * len(candidates)))]
    for address in in_use:
        addresses.claim(address)
    return addresses, in_use


def batch_costs(cidr: str) -> tuple[float, float]:
    """Microseconds of a batch: ours, and of as many additions to a set."""
    random = Random(cidr)
    addresses, in_use = filled(cidr, random)
    plain = set(in_use)
    ours, theirs = [], []
    for _ in range(WARM_UP + ROUNDS):
        for _ in range(BATCH):
            freed = in_use.pop(random.randrange(len(in_use)))
            addresses.free(freed)
            plain.remove(freed)
        before = time.thread_time()
        given = addresses.allocate(BATCH)
        between = time.thread_time()
        for address in given:
            plain.add(address)
        after = time.thread_time()
        ours.append(between - before)
        theirs.append(after - between)
        in_use += given
    assert len(plain) == addresses.count() == len(in_use), "an address was given twice or lost"
    return 1e6 * median(ours[WARM_UP:]), 1e6 * median(theirs[WARM_UP:])


def pod_cost() -> float:
    """Microseconds of the pool's part of an ADD and a DEL, on a pool of 250 of which 100 are held."""
    ips = tuple((f"id-{number}", f"10.0.0.{number}") for number in range(POOL))
    pool = replay([Granted(nc="nc", ips=ips, at=0.0, programmed=True)])
    for number in range(100):
        pool = add(pool, Holder(f"container-{number}", "eth0"))
    holder, spent = Holder("one-more", "eth0"), []
    for _ in range(WARM_UP + ROUNDS):
        before = time.thread_time()
        pool = apply(add(pool, holder), Freed(container_id="one-more", ifname="eth0", at=2.0))
        spent.append(time.thread_time() - before)
    return 1e6 * median(spent[WARM_UP:])


def add(pool: Pool, holder: Holder) -> Pool:
    return apply(pool, Assigned(ids=(pool.first_available("nc")[0].id,), holder=holder, at=1.0))


def report(costs: dict[str, tuple[float, float]], pod: float) -> bool:
    print(f"a batch of {BATCH} from a subnet that is 90 % full (median of {ROUNDS}):")
    print(f"  {'subnet':<12} {'batch, µs':>10} {BATCH} set.add, µs {'ratio':>7}")
    for cidr, (ours, theirs) in costs.items():
        print(f"  {cidr:<12} {ours:>10.1f} {theirs:>14.1f} {ours / theirs:>7.1f}")
    growth = costs["10.0.0.0/8"][0] / costs["10.0.0.0/24"][0]
    kept = costs[PROMISED][0] < MOST_MICROSECONDS and growth < MOST_GROWTH
    print(f"/8 beside /24: {growth:.2f}")
    print(f"under {MOST_MICROSECONDS:.0f} µs in a /16, flat from /24 to /8: {'kept' if kept else 'BROKEN'}")
    fast = pod < MOST_MICROSECONDS_A_POD
    print(f"a pod's ADD and DEL on a pool of {POOL}: {pod:.1f} µs, under 50: {'kept' if fast else 'BROKEN'}")
    return kept and fast


def main() -> int:
    gc.disable()  # what is measured makes no cycles; a collection would only fall on somebody's batch
    return 0 if report({cidr: batch_costs(cidr) for cidr in SUBNETS}, pod_cost()) else 1


if __name__ == "__main__":
    sys.exit(main())
