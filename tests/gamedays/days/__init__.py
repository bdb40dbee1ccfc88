"""The game days. Each breaks something, tries what the runbook says as it is written, and returns what was
published and what was seen.
"""

from days.dynamodb import clock_off, dynamodb_fails, dynamodb_silent, dynamodb_slow, table_throttled
from days.game_day import GameDay
from days.slots import callers_crash, given_back_twice, holder_frozen, slots_held, slots_lost
from days.table import (
    bucket_row_broken,
    later_protocol,
    lease_row_broken,
    reconciler_disabled,
    restored_backup,
    role_denied,
    table_gone,
)
from days.vendor import noisy_product, poisoned_reply, vendor_hangs

__all__ = ["DAYS", "GameDay"]

# A run that fails is an error of the function, an event in the queue, no sweep, and a table that was not
# scanned.
RUNS_FAIL = {"reconciler-errors": 10, "dead-letters": 10, "no-sweep": 15, "unfinished-sweeps": 60}
NO_ANSWER = {"dynamodb-faltered": 1, "dynamodb-unavailable": 5}

DAYS = [
    GameDay("A bucket's `capacity` became a text", bucket_row_broken, {"unreadable-buckets": 5}),
    GameDay("A lease's `cost` became a text", lease_row_broken, {"unparsable-rows": 5, "drift": 185}),
    GameDay("The EventBridge rule was disabled", reconciler_disabled, {"no-sweep": 15}),
    GameDay("The reconciler's role lost its rights", role_denied, RUNS_FAIL),
    GameDay("The table was deleted", table_gone, RUNS_FAIL),
    GameDay("DynamoDB throttled writes", table_throttled, {"throttles": 10}, needs_binding=True),
    GameDay("DynamoDB answered slowly", dynamodb_slow, {"deadline-hit": 60, "unfinished-sweeps": 60}),
    GameDay("DynamoDB answered nothing", dynamodb_silent, RUNS_FAIL | NO_ANSWER, needs_binding=True),
    GameDay(
        "DynamoDB answered HTTP 500",
        dynamodb_fails,
        RUNS_FAIL | NO_ANSWER | {"system-errors": 5},
        needs_binding=True,
    ),
    GameDay("DynamoDB's clock was an hour ahead", clock_off, {"clock-offset": 5}),
    GameDay("100 slots were held, and nothing moved", slots_held, {"leak": 25}),
    GameDay("100 slots were lost without a lease", slots_lost, {"drift": 5}),
    GameDay("Four callers crashed in each interval", callers_crash, {"restored-slots": 60}),
    GameDay(
        "A holder froze longer than its lease", holder_frozen, {"expired-but-alive": 10}, needs_binding=True
    ),
    GameDay("A client gave slots back and left its leases", given_back_twice, {"already-capped": 60}),
    GameDay("A vendor's calls hung", vendor_hangs, {"shedding": 15, "leak": 20}, needs_binding=True),
    GameDay(
        "A product asked again at once",
        noisy_product,
        {"refusals": 60, "caller-refusals": 60},
        needs_binding=True,
    ),
    GameDay(
        "A vendor answered 12 times with nonsense",
        poisoned_reply,
        {"vendor-refusals": 1},
        happens_once=True,
        needs_binding=True,
    ),
    GameDay("The table was restored to a point in time", restored_backup, {}),
    GameDay(
        "SDK and sweep met a bucket of a later protocol",
        later_protocol,
        {"unreadable-buckets": 5, "refused-leases": 5},
    ),
]
