"""The informer against a server that drops, delays, refuses and compacts, in any order.

Once the server is well again and time has passed, the informer must know what the server knows, and so must
every handler that followed it, quick or slow.
"""

import asyncio
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from subnetes.kube.backoff import Backoff
from subnetes.kube.delivery import Handler
from subnetes.kube.errors import ApiError, Forbidden, Gone, TooManyRequests, Unavailable
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key, key_of
from tests.harness import virtual_time
from tests.harness.collection import Collection, Thing, version_of

pytestmark = pytest.mark.slow

Step = Callable[[Collection], None]

NAMES = st.sampled_from(["a", "b", "c", "d"])
PROBLEMS: st.SearchStrategy[ApiError] = st.sampled_from(
    [
        Unavailable("reset"),
        Forbidden("no"),
        TooManyRequests("slow down", retry_after=7.0),
        Gone("too old"),
    ]
)


def set_latency(seconds: float) -> Step:
    return lambda server: setattr(server, "latency", seconds)


def behind_its_back(changes: list[Step]) -> Step:
    """What happens while the informer is away is also forgotten before it is back."""

    def step(server: Collection) -> None:
        server.interrupt(Unavailable("reset"))
        for change in changes:
            change(server)
        server.compact()

    return step


PUTS: st.SearchStrategy[Step] = NAMES.map(lambda name: lambda server: server.put(name))
DELETIONS: st.SearchStrategy[Step] = NAMES.map(lambda name: lambda server: server.delete(name))
STEPS: st.SearchStrategy[Step] = st.one_of(
    PUTS,
    PUTS,
    DELETIONS,
    st.lists(PUTS | DELETIONS, min_size=1).map(behind_its_back),
    st.just(Collection.bookmark),
    st.just(Collection.compact),
    st.none().map(lambda _: lambda server: server.interrupt()),
    PROBLEMS.map(lambda problem: lambda server: server.interrupt(problem)),
    PROBLEMS.map(lambda problem: lambda server: server.refusals.append(problem)),
    st.sampled_from([0.0, 0.3, 4.0]).map(set_latency),
)
PAUSES = st.sampled_from([0.0, 0.0, 0.01, 0.5, 6.0, 60.0])


class Follower:
    """Replays what it is told, and minds that it fits what it was told before."""

    def __init__(self, seconds_a_change: float) -> None:
        self.seconds = seconds_a_change
        self.state: dict[Key, Thing] = {}
        self.newest: dict[Key, int] = {}

    async def __call__(self, old: Thing | None, new: Thing | None) -> None:
        await asyncio.sleep(self.seconds)
        known = new or old
        assert known is not None
        key = key_of(known)
        assert self.state.get(key) == old, "a change starts where the last one ended"
        assert old != new
        if new is None:
            del self.state[key]
            return
        assert version_of(new) > self.newest.get(key, 0), "nothing goes back in time"
        self.state[key] = new
        self.newest[key] = version_of(new)


async def follow(script: list[tuple[Step, float]], initially: set[str]) -> None:
    server = Collection()
    for name in initially:
        server.put(name)
    informer = Informer(
        "things", server, indexes={"name": lambda obj: [obj["metadata"]["name"]]}, backoff=Backoff(0.1, 10)
    )
    followers = [Follower(0.0), Follower(3.0)]
    for follower in followers:
        handler: Handler[Thing] = follower
        informer.on_change(handler)
    running = asyncio.create_task(informer.run())
    for step, pause in script:
        step(server)
        await asyncio.sleep(pause)
    server.latency = 0.0
    server.refusals.clear()
    await asyncio.sleep(100)
    informer.stop()
    await running
    assert {key_of(obj): obj for obj in informer.store} == {
        key_of(obj): obj for obj in server.things.values()
    }
    for follower in followers:
        assert follower.state == {key_of(obj): obj for obj in server.things.values()}
    for name in "abcd":
        assert informer.store.by("name", name) == [
            server.things[each] for each in server.things if each == name
        ]


@settings(max_examples=400, deadline=None)
@given(script=st.lists(st.tuples(STEPS, PAUSES), max_size=40), initially=st.sets(NAMES))
def test_informer_and_handlers_end_with_the_servers_state(
    script: list[tuple[Step, float]], initially: set[str]
) -> None:
    virtual_time.run(follow(script, initially))
