"""What a queue of keys decides, at times that the test names."""

from subnetes.kube.workqueue import WorkQueue


def queue() -> WorkQueue[str]:
    return WorkQueue(retry_delay=lambda failures: 10.0 * failures)


def taken(work: WorkQueue[str], now: float) -> list[str]:
    found = []
    while (each := work.take(now)) is not None:
        found.append(each.key)
    return found


def test_keys_are_taken_in_the_order_in_which_they_were_added() -> None:
    work = queue()
    for key in ("c", "a", "b"):
        work.add(key, now=1)
    assert taken(work, now=1) == ["c", "a", "b"]


def test_a_burst_of_one_key_is_taken_once() -> None:
    work = queue()
    for _ in range(100):
        work.add("a", now=1)
    assert work.depth() == 1
    assert taken(work, now=1) == ["a"]
    work.done("a", now=2)
    assert taken(work, now=1000) == []


def test_a_key_in_process_is_not_taken_again_before_it_is_done() -> None:
    work = queue()
    work.add("a", now=1)
    assert taken(work, now=1) == ["a"]
    work.add("a", now=2)
    assert taken(work, now=3) == []
    work.done("a", now=4)
    assert taken(work, now=4) == ["a"]


def test_the_wait_is_counted_from_when_a_key_became_ready() -> None:
    work = queue()
    work.add("a", now=1)
    work.add("a", now=3)
    work.add_after("b", 2, now=1)
    first, second = work.take(5), work.take(5)
    assert first is not None
    assert second is not None
    assert (first.key, first.waited) == ("a", 4)
    assert (second.key, second.waited) == ("b", 2)


def test_of_several_delays_the_earliest_wins_and_settles_the_others() -> None:
    work = queue()
    work.add_after("a", 30, now=0)
    work.add_after("a", 10, now=0)
    work.add_after("a", 20, now=0)
    assert work.next_due() == 10
    assert taken(work, now=9.9) == []
    assert taken(work, now=10) == ["a"]
    work.done("a", now=11)
    assert work.next_due() is None
    assert taken(work, now=1000) == []


def test_adding_a_delayed_key_makes_it_ready_at_once() -> None:
    work = queue()
    work.add_after("a", 30, now=0)
    work.add("a", now=1)
    assert taken(work, now=1) == ["a"]


def test_failures_of_a_key_rest_it_longer_each_time_and_success_forgets_them() -> None:
    work = queue()
    work.add("a", now=0)
    for began, rest in ((0, 10), (10, 20), (30, 30)):
        assert taken(work, began) == ["a"]
        work.failed("a", began)
        assert work.next_due() == began + rest
    assert work.failures("a") == 3
    assert taken(work, now=60) == ["a"]
    work.done("a", now=60)
    assert work.failures("a") == 0


def test_a_failure_waits_at_least_as_long_as_the_server_asked() -> None:
    work = queue()
    work.add("a", now=0)
    assert taken(work, now=0) == ["a"]
    work.failed("a", now=0, at_least=55)
    assert work.next_due() == 55


def test_one_failing_key_does_not_hold_up_another() -> None:
    work = queue()
    work.add("a", now=0)
    work.add("b", now=0)
    assert taken(work, now=0) == ["a", "b"]
    work.failed("a", now=1)
    work.done("b", now=1, again_after=2)
    assert taken(work, now=3) == ["b"]
    assert taken(work, now=11) == ["a"]


def test_a_key_added_while_in_process_overrides_the_delay_it_ends_with() -> None:
    work = queue()
    work.add("a", now=0)
    assert taken(work, now=0) == ["a"]
    work.add("a", now=1)
    work.done("a", now=2, again_after=300)
    assert taken(work, now=2) == ["a"]


def test_delays_that_were_overtaken_do_not_pile_up() -> None:
    work = queue()
    for now in range(10_000):
        work.add("a", now)
        assert taken(work, now) == ["a"]
        work.done("a", now, again_after=1_000_000)
    assert len(work._schedule) < 200
