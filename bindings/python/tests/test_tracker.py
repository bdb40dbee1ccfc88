"""The reservation tracker."""

from __future__ import annotations

import time

import pytest

import sluice

from conftest import Declare, eventually, level


def _grant(client: sluice.Client, slots: str) -> sluice.Grant:
    grant = client.acquire(slots)
    assert isinstance(grant, sluice.Grant)
    return grant


def test_a_grant_is_stored_found_and_taken_once(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(3), "concurrent")
    tracker = client.reservations(max_reservations=2)
    grant = _grant(client, slots)
    reservation_id = tracker.store("request-1", slots, grant)
    assert grant.has_ended, "the tracker holds it now"
    known = tracker.get("request-1", slots)
    assert known is not None
    assert (known.reservation_id, known.request_id, known.bucket_id) == (reservation_id, "request-1", slots)
    assert known.estimated_tokens == 1.0
    assert tracker.get("request-2", slots) is None
    assert (tracker.reservation_count, tracker.request_count) == (1, 1)

    taken = tracker.get_and_clear("request-1", slots)
    assert taken is not None
    assert taken[0] == known
    assert tracker.get_and_clear("request-1", slots) is None
    assert taken[1].release() == "given_back"
    assert level(client, slots) == 3


def test_a_grant_that_is_not_stored_stays_with_its_caller(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(5), "concurrent")
    tracker = client.reservations(max_reservations=2)
    tracker.store("request", slots, _grant(client, slots))
    second = _grant(client, slots)
    with pytest.raises(sluice.ReservationTakenError, match="request request already holds a reservation"):
        tracker.store("request", slots, second)
    tracker.store("request", "a name of our own", second)
    third = _grant(client, slots)
    with pytest.raises(sluice.ReservationCapacityError, match="holds 2 reservations"):
        tracker.store("other", slots, third)
    assert third.release() == "given_back"
    with pytest.raises(sluice.EndedError):
        tracker.store("other", slots, third)
    cleared = tracker.clear_all_for_request("request")
    assert [known.bucket_id for known, _ in cleared] == [slots, "a name of our own"]
    for _, grant in cleared:
        grant.release()
    assert (tracker.stale_entry_ratio, tracker.compact_heap()) == (1.0, 2)
    assert tracker.stale_entry_ratio == 0.0
    assert level(client, slots) == 5


def test_a_request_is_taken_without_its_bucket_and_by_the_time_of_its_storing(
    client: sluice.Client, declare: Declare
) -> None:
    slots = declare(sluice.Limit.concurrent(3), "concurrent")
    tracker = client.reservations()
    for bucket in ("b", "a", "c"):
        tracker.store("request", bucket, _grant(client, slots))
    assert tracker.get_and_clear("another") is None
    first = tracker.get_and_clear("request")
    assert first is not None
    assert first[0].bucket_id == "b"
    last = tracker.get("request", "c")
    assert last is not None
    assert tracker.get_and_clear_stale() == []
    assert [known.bucket_id for known, _ in tracker.get_and_clear_stale(last.created_at)] == ["a"]
    assert [known.bucket_id for known, _ in tracker.get_and_clear_stale(time.time() + 60)] == ["c"]


def test_what_nobody_takes_is_released_by_the_background_task(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(2), "concurrent")
    tracker = client.reservations(max_reservation_age=0.2, stale_cleanup_interval=0.05)
    tracker.start()
    tracker.start()
    tracker.store("request", slots, _grant(client, slots))
    assert eventually(lambda: level(client, slots) == 2)
    assert eventually(lambda: tracker.stale_report().given_back == 1)
    tracker.stop()
    tracker.store("request", slots, _grant(client, slots))
    assert eventually(lambda: len(stale := tracker.get_and_clear_stale()) == 1 and stale[0][1].release() is not None)
    tracker.store("request", slots, _grant(client, slots))
    assert eventually(lambda: tracker.release_stale().given_back == 1)


async def test_the_tracker_of_asyncio_is_the_same(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    slots = declare(sluice.Limit.concurrent(2), "concurrent")
    tracker = aclient.reservations()
    await tracker.start()
    grant = await aclient.acquire(slots)
    assert isinstance(grant, sluice.AsyncGrant)
    reservation_id = await tracker.store("request", slots, grant)
    known = await tracker.get("request", slots)
    assert known is not None
    assert known.reservation_id == reservation_id
    await tracker.stop()
    assert await tracker.get_and_clear_stale() == []
    taken = await tracker.get_and_clear("request")
    assert taken is not None
    assert await taken[1].release() == "given_back"
    assert await tracker.clear_all_for_request("request") == []
    assert tracker.compact_heap() == 1
    del tracker
    assert level(client, slots) == 2
