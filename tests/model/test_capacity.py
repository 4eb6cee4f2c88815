"""What fits into a worker, and in what order."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.capacity import NOTHING, PATIENCE, Capacity, Needs, Queued, fits, less, needs_of, needs_text, shares

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=200)
SECOND = timedelta(seconds=1)
names = st.sampled_from(["cpu", "memory_mb", "gpu", "licence"])
amounts = st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 7.0])
resources = st.dictionaries(names, amounts, min_size=1, max_size=3)
labels = st.sets(st.sampled_from(["eu", "ssd"])).map(tuple)
queued = st.lists(
    st.builds(
        lambda needs, wanted, count, waited: (Needs(needs, wanted), count, waited * SECOND),
        resources,
        labels,
        st.integers(1, 20),
        st.integers(-1, 60),
    ),
    max_size=8,
).map(lambda lanes: [Queued(place, *lane) for place, lane in enumerate(lanes)])


def waiting(lane: int, cpu: float, count: int = 1, seconds: float = 0) -> Queued:
    return Queued(lane, Needs({"cpu": cpu}), count, seconds * SECOND)


@EVERY_TIME_THE_SAME
@given(queued, st.dictionaries(names, st.sampled_from([0.5, 1.0, 4.0, 10.0])), labels, st.integers(0, 30))
def test_never_more_is_taken_than_there_is(
    lanes: list[Queued], free: dict[str, float], has: tuple[str, ...], room: int
) -> None:
    taken = shares(lanes, Capacity(free, free, has), room=room)

    assert sum(taken.values()) <= room
    used = [lane.needs.resources for lane in lanes for _ in range(taken.get(lane.lane, 0))]
    assert all(amount > -1e-6 for amount in less(free, used).values())
    for lane in lanes:
        assert taken.get(lane.lane, 0) <= lane.count
        assert lane.lane not in taken or set(lane.needs.labels) <= set(has)


def test_a_tenth_fits_ten_times_into_a_whole() -> None:
    assert fits({"cpu": 0.1}, {"cpu": 1.0}) == 10
    assert fits({"cpu": 0.1}, less({"cpu": 1.0}, [{"cpu": 0.1}] * 9)) == 1
    assert fits({"gpu": 1}, {"cpu": 8.0}) == 0
    assert fits({}, {}) > 1000


def test_what_does_not_fit_beside_the_others_is_passed_for_a_while_and_then_waited_for() -> None:
    half_full = Capacity({"cpu": 4.0}, {"cpu": 2.0})
    small = waiting(1, 1.0, count=5)

    assert shares([waiting(0, 4.0, seconds=1), small], half_full, room=10) == {1: 2}
    patient = waiting(0, 4.0, seconds=PATIENCE.total_seconds() + 1)
    assert shares([patient, small], half_full, room=10) == {}
    assert shares([patient, small], Capacity({"cpu": 4.0}, {"cpu": 4.0}), room=10) == {0: 1}


def test_who_waits_for_one_resource_does_not_hold_up_those_who_need_another() -> None:
    capacity = Capacity({"cpu": 4.0, "gpu": 1.0}, {"cpu": 1.0, "gpu": 1.0})
    other = Queued(1, Needs({"gpu": 1.0}), 1, timedelta())

    assert shares([waiting(0, 4.0, seconds=60), other], capacity, room=10) == {1: 1}


def test_what_the_worker_could_never_run_stands_in_nobodys_way() -> None:
    capacity = Capacity({"cpu": 4.0}, {"cpu": 4.0})
    elsewhere = Queued(2, Needs({"cpu": 1.0}, ("eu",)), 1, 60 * SECOND)

    assert shares([waiting(0, 5.0, seconds=60), elsewhere, waiting(1, 1.0)], capacity, room=10) == {1: 1}


def test_the_same_needs_have_the_same_text_in_whatever_order() -> None:
    one = Needs({"gpu": 1.0, "cpu": 0.5}, ("ssd", "eu"))
    two = Needs({"cpu": 0.5, "gpu": 1.0}, ("eu", "ssd", "eu"))

    assert needs_text(one) == needs_text(two)
    assert needs_of(needs_text(two)) == Needs({"cpu": 0.5, "gpu": 1.0}, ("eu", "ssd"))
    assert needs_text(NOTHING) == ""
    assert needs_of("") == NOTHING
