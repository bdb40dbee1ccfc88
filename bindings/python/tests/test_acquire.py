"""Grants and refusals, with their numbers."""

from __future__ import annotations

import datetime
import pickle

import pytest

import sluice

from conftest import Declare, eventually, level, used_up_but_for

DAY = 86_400.0


def test_a_grant_takes_and_a_refusal_says_how_long_to_wait(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(2, per=100))
    for _ in range(2):
        grant = client.acquire(rpm)
        assert isinstance(grant, sluice.Grant)
        assert grant.costs == {rpm: 1.0}
        assert grant.basis == "table"
        assert grant.booked_wait == 0.0
        assert grant.lease_ends is None
        assert grant.release() == "given_back"
    retry = client.acquire(rpm)
    assert isinstance(retry, sluice.RetryIn)
    # One token in 50 s, from a moment ago.
    assert 45 < retry.wait <= 50
    assert (retry.dimension, retry.reason, retry.delay_seconds) == (rpm, "exhausted", int(retry.wait) + 1)
    assert str(retry).startswith(f"{rpm}: exhausted; try again in ")


def test_several_dimensions_are_taken_together_or_not_at_all(client: sluice.Client, declare: Declare) -> None:
    rpm, tpm = declare(sluice.Limit.requests(5, per=DAY)), declare(sluice.Limit.tokens(1_000, per=DAY), "tpm")
    grant = client.acquire(rpm, tpm, costs={tpm: 900})
    assert isinstance(grant, sluice.Grant)
    assert grant.costs == {rpm: 1.0, tpm: 900.0}
    grant.release()
    retry = client.acquire(rpm, tpm, costs={tpm: 900.5})
    assert isinstance(retry, sluice.RetryIn)
    assert retry.dimension == tpm
    assert eventually(lambda: level(client, rpm) >= 4), "the request was not given back"


def test_a_share_of_a_bucket_is_kept_for_its_product(client: sluice.Client, declare: Declare) -> None:
    limit = sluice.Limit.requests(20, per=DAY)
    rpm = declare(limit)
    batch = sluice.Share(0.1, floor=1, background=True)
    shares: dict[str, float | sluice.Share] = {"search": 0.5, "checkout/batch": batch}
    assert client.ops.apply_limit(rpm, limit, shares=shares) == "changed"
    assert client.ops.apply_limit(rpm, limit) == "unchanged", "its shares stay"
    taken = 0
    while isinstance(grant := client.acquire(rpm), sluice.Grant):
        grant.release()
        taken += 1
    assert 8 <= taken < 20, "what the common line has, and what others lend"
    assert isinstance(client.admit(rpm, slo=1), sluice.Shed)
    assert isinstance(client.admit(rpm, slo=1, share="search"), sluice.Admitted)
    assert isinstance(client.acquire(rpm, share="search"), sluice.Grant)
    assert client.ops.apply_limit(rpm, limit, shares={}) == "changed"
    with pytest.raises(ValueError, match=r"lower the parts|part ="):
        client.ops.apply_limit(rpm, limit, shares={"search": 1.5})
    with pytest.raises(ValueError, match="two words"):
        client.ops.apply_limit(rpm, limit, shares={"two words": 0.5})


def test_the_environment_names_the_share_that_pays(
    client: sluice.Client, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    rpm = used_up_but_for(client, declare, "search")
    monkeypatch.setenv("SLUICE_SHARE", "search")
    with sluice.Client.from_env() as of_search:
        assert isinstance(of_search.acquire(rpm), sluice.Grant)
    with sluice.Client.from_env(share="common") as of_nobody:
        assert isinstance(of_nobody.acquire(rpm), sluice.RetryIn), "what is named in code wins"


def test_a_call_names_the_share_that_pays(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(5, per=DAY))
    # A bucket that does not have the share is asked as if none was named.
    grant = client.acquire(rpm, share="search")
    assert isinstance(grant, sluice.Grant)
    with client.slot(rpm, share="checkout/batch"):
        pass
    with pytest.raises(sluice.RequestError, match='malformed share "two words"'):
        client.acquire(rpm, share="two words")
    with pytest.raises(sluice.RequestError, match="malformed share"), client.slot(rpm, share="two words"):
        pass
    refused = sluice.Reply(429, {})
    with pytest.raises(sluice.RequestError, match="malformed share"):
        client.on_rate_limited(rpm, reply=refused, share="two words")
    with sluice.Client.from_env(share="search") as of_search, of_search.slot(rpm):
        pass
    with pytest.raises(ValueError, match='share = "two words"'):
        sluice.Client.from_env(share="two words")


def test_mistakes_raise_the_sdk_s_texts(client: sluice.Client, declare: Declare) -> None:
    tpm = declare(sluice.Limit.tokens(1_000), "tpm")
    with pytest.raises(sluice.RequestError, match="counts tokens, and the call names no cost"):
        client.acquire(tpm)
    with pytest.raises(sluice.RequestError, match="no dimension is named"):
        client.acquire()
    with pytest.raises(sluice.RequestError, match="cost -1 "):
        client.acquire(tpm, costs={tpm: -1})
    with pytest.raises(sluice.UnknownDimensionError, match="unknown dimension nobody#rpm"):
        client.acquire("nobody#rpm")
    with pytest.raises(sluice.NeverSatisfiableError, match="can never grant 1001"):
        client.acquire(tpm, costs={tpm: 1_001})
    with pytest.raises(TypeError, match="not a number of tokens"):
        client.acquire(tpm, costs={tpm: "many"})  # type: ignore[dict-item]
    assert issubclass(sluice.RequestError, (sluice.AcquireError, ValueError))


def test_settings_are_checked_and_named(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"lease_ttl = 0.5: it must be at least 1 s"):
        sluice.Client(table="t", lease_ttl=0.5)
    with pytest.raises(ValueError, match="max_wait = -1"):
        sluice.Client(table="t", max_wait=-1)
    with pytest.raises(TypeError, match='no setting "tabel"'):
        sluice.Client(table="t", tabel="u")  # type: ignore[call-arg]
    assert sluice.Client(table="t", lease_ttl=datetime.timedelta(seconds=5), prefetch=["a#rpm"]).table == "t"
    monkeypatch.setenv("SLUICE_LEASE_TTL", "soon")
    with pytest.raises(sluice.ConfigError, match="SLUICE_LEASE_TTL"):
        sluice.Client.from_env()


def test_an_unreachable_table_is_an_error_in_time() -> None:
    client = sluice.Client(table="table", endpoint="http://127.0.0.1:9", answer_within=1, attempt_timeout=0.2)
    with pytest.raises(sluice.UnavailableError, match="DynamoDB is unavailable"):
        client.acquire("openai#rpm")


def test_what_a_call_used_is_settled(client: sluice.Client, declare: Declare) -> None:
    tpm = declare(sluice.Limit.tokens(1_000, per=DAY), "tpm")
    grant = client.acquire(tpm, costs={tpm: 600})
    assert isinstance(grant, sluice.Grant)
    settled = grant.settle(tpm, 100)
    assert (settled.outcome, round(settled.amount)) == ("returned", 500)
    assert level(client, tpm) == pytest.approx(900, abs=1)
    with pytest.raises(sluice.SettleError, match="nobody#tpm"):
        grant.settle("nobody#tpm", 1)
    grant.release()
    with pytest.raises(sluice.EndedError):
        grant.settle(tpm, 100)
    with pytest.raises(sluice.EndedError):
        grant.release()


def test_a_grant_ends_with_its_block(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    grant = client.acquire(slots)
    assert isinstance(grant, sluice.Grant)
    with pytest.raises(KeyError), grant:
        assert isinstance(client.acquire(slots), sluice.RetryIn)
        raise KeyError
    assert grant.has_ended
    assert level(client, slots) == 1


def test_a_forgotten_grant_gives_its_slot_back(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    assert isinstance(client.acquire(slots), sluice.Grant)
    assert eventually(lambda: level(client, slots) == 1)


def test_a_cancelled_grant_gives_its_tokens_back(client: sluice.Client, declare: Declare) -> None:
    tpm = declare(sluice.Limit.tokens(1_000, per=DAY), "tpm")
    grant = client.acquire(tpm, costs={tpm: 600})
    assert isinstance(grant, sluice.Grant)
    grant.cancel()
    assert level(client, tpm) == pytest.approx(1_000, abs=1)


def test_leases_are_renewed_and_listed(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    grant = client.acquire(slots)
    assert isinstance(grant, sluice.Grant)
    before = grant.lease_ends
    assert before is not None
    assert before.tzinfo is not None
    grant.renew()
    assert grant.lease_ends is not None
    assert grant.lease_ends >= before
    assert not grant.is_lease_lost
    assert [lease.dimension for lease in client.ops.leases() if lease.dimension == slots] == [slots]
    grant.release()


def test_a_ticket_books_a_start_and_is_redeemed_once(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(2, per=1))
    for _ in range(2):
        assert isinstance(client.acquire(rpm), sluice.Grant)
    refused = client.acquire(rpm, ticket_within=0.001)
    assert isinstance(refused, sluice.RetryIn)
    assert (refused.ticket, refused.no_ticket) == (None, "too_short") or refused.no_ticket == "too_far_ahead"
    slow = declare(sluice.Limit.requests(10, per=5))
    for _ in range(10):
        assert isinstance(client.acquire(slow), sluice.Grant)
    booked = client.acquire(slow, ticket_within=10)
    assert isinstance(booked, sluice.RetryIn)
    assert booked.ticket is not None
    assert booked.ticket.dimensions == (slow,)
    early = client.redeem(booked.ticket)
    assert isinstance(early, sluice.RetryIn)
    assert early.ticket == booked.ticket
    assert eventually(lambda: client.now() >= booked.ticket.start_at)  # type: ignore[union-attr]
    granted = client.acquire(slow, with_ticket=str(booked.ticket))
    assert isinstance(granted, sluice.Grant)
    assert client.redeem(booked.ticket) == sluice.NotRedeemed("spent")
    with pytest.raises(sluice.RedeemError):
        client.redeem("no ticket")


def test_admission_sheds_what_would_be_late(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=100))
    admitted = client.admit(rpm, 1, slo=5)
    assert admitted == sluice.Admitted(0.0, None)
    client.acquire(rpm)
    shed = client.admit(rpm, 1, slo=5, backlog=0)
    assert isinstance(shed, sluice.Shed)
    assert shed.reason == "over_slo"
    assert 90 < shed.wait <= 100
    assert isinstance(client.admit(rpm), sluice.Admitted)


def test_buckets_are_declared_changed_and_removed(client: sluice.Client, declare: Declare) -> None:
    tpm = declare(sluice.Limit.tokens(1_000, per=60, cost_per_call=10), "tpm")
    assert client.limit(tpm) == sluice.Limit("tokens", 1_000.0, 60.0, 1_000.0, 10.0)
    assert client.ops.apply_limit(tpm, sluice.Limit.tokens(1_000, per=60, cost_per_call=10)) == "unchanged"
    assert client.ops.apply_limit(tpm, sluice.Limit.tokens(500, per=30, refill=100)) == "changed"
    assert client.limit(tpm) == sluice.Limit("tokens", 500.0, 60.0, 200.0, None)
    assert tpm in [bucket.dimension for bucket in client.ops.buckets()]
    with pytest.raises(ValueError, match="capacity = none"):
        client.ops.apply_limit(tpm, sluice.Limit.tokens("none"))  # type: ignore[arg-type]
    with pytest.raises(sluice.LimitsError, match="cannot change from tokens to concurrent"):
        client.ops.apply_limit(tpm, sluice.Limit.concurrent(1))
    assert client.ops.remove_bucket(tpm)
    assert not client.ops.remove_bucket(tpm)
    assert client.limit(tpm) is None


def test_levels_are_lowered_blocked_and_refilled(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100, per=DAY))
    penalty = client.penalize(rpm, 0.5)
    assert penalty.applied
    assert penalty.level == pytest.approx(50, abs=1)
    with pytest.raises(sluice.PenalizeError):
        client.penalize(rpm, 2)
    cool_down = client.cool_down(rpm, 30)
    assert cool_down.was_set
    refused = client.acquire(rpm)
    assert isinstance(refused, sluice.RetryIn)
    assert refused.reason == "cooling_down"
    bucket = client.ops.bucket(rpm)
    assert bucket is not None
    assert bucket.cooling_down_until == cool_down.until
    assert client.end_cool_down(rpm) == cool_down.until
    assert client.end_cool_down(rpm) is None
    assert client.refill(rpm).level == 100
    assert client.refill(rpm, 10).level == pytest.approx(10, abs=0.01)


def test_a_closed_client_grants_nothing(declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(2))
    with sluice.Client.from_env() as closed:
        assert isinstance(closed.acquire(rpm), sluice.Grant)
    with pytest.raises(sluice.ClosedError, match="client is closed"):
        closed.acquire(rpm)
    assert closed.close(1) == sluice.Closed(False, [])


def test_a_sweep_gives_back_what_ended(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    with sluice.Client.from_env(lease_ttl=1, renew_leases=False, self_heal=False) as crashed:
        grant = crashed.acquire(slots)
        assert isinstance(grant, sluice.Grant)
        assert eventually(lambda: client.ops.sweep().restored_slots == 1, within=10)
        assert grant.release() == "lease_gone"
    assert level(client, slots) == 1


def test_estimates_follow_what_calls_used() -> None:
    estimator = sluice.TokenEstimator(quantile=0.5)
    assert estimator.estimate("summary") is None
    assert estimator.estimate_or("summary", 4_096) == 4_096
    for _ in range(100):
        estimator.observe("summary", 1_000)
    estimate = estimator.estimate("summary")
    assert estimate is not None
    assert 1_000 <= estimate < 1_100
    assert (estimator.estimate_or("summary", 500), estimator.key_count) == (500, 1)


def test_prefetched_tokens_are_granted_from_memory(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100_000, per=60))
    with sluice.Client.from_env(prefetch=[rpm]) as stocked:
        for _ in range(2_000):
            assert isinstance(stocked.acquire(rpm), sluice.Grant)
        taken = 100_000 - level(client, rpm)
        # Ahead of what was granted, by the stock.
        assert taken > 1_000
    assert level(client, rpm) <= 100_000


def test_errors_cross_processes(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=100))
    client.acquire(rpm)
    with pytest.raises(sluice.RefusedError) as refused:
        client.slot(rpm, max_wait=0).grant()
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), copy.retry) == (str(refused.value), refused.value.retry)
    with pytest.raises(sluice.UnknownDimensionError) as unknown:
        client.acquire("nobody#rpm")
    assert str(pickle.loads(pickle.dumps(unknown.value))) == str(unknown.value)


def test_a_client_in_shadow_mode_stops_nothing(declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=300))
    with sluice.Client.from_env(mode="shadow", warn_at=None, note_use=False) as client:
        granted = [client.acquire(rpm) for _ in range(3)]
        assert [grant.basis for grant in granted if isinstance(grant, sluice.Grant)] == ["table", "shadow", "shadow"]
        with client.slot(rpm, max_wait=60) as slot:
            assert slot.basis == "shadow"
    with pytest.raises(ValueError, match="it must be between 0 and 1"):
        sluice.Client.from_env(warn_at=1.5)
    with pytest.raises(ValueError, match="it must be enforce or shadow"):
        sluice.Client.from_env(mode="observe")  # type: ignore[arg-type]
