"""The game days. Each breaks something, tries what the runbook says as it is written, and returns what was
published and what was seen.
"""

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import deploy
import judged
from day import ROOT, TABLE, Day, day, expect, first_line, key, of_runbook, rate
from judged import HOUR, Phase
from lab import Lab, Table, lease, slots

BUCKET = "elevenlabs#concurrent"
LIMITS = f"sluice buckets apply {ROOT}/buckets/sandbox.toml"
Seen = tuple[dict[str, Phase], str]


@dataclass
class GameDay:
    """What is broken, and the alarms that must go off, each with the most minutes after the fault."""

    what: str
    plays: Callable[[Lab], Seen]
    expected: dict[str, int]
    happens_once: bool = False
    """The fault is one event, which does not go on until it is mended."""
    needs_binding: bool = False
    """The callers of the day print metrics."""

    @property
    def name(self) -> str:
        return self.plays.__name__.replace("_", " ")


def bucket_row_broken(lab: Lab) -> Seen:
    with day(lab, "row") as this:
        this.table.put([slots(BUCKET, 5, 5), rate("openai#rpm", 500)])
        this.sweep()
        this.shell("sluice acquire openai#rpm")
        this.begin("broken")
        names, values = {"#c": "capacity"}, {":c": {"S": "500"}}
        broken = {
            "UpdateExpression": "SET #c = :c",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        this.db.update_item(TableName=TABLE, Key=key("openai#rpm"), **broken)
        said = this.shell("sluice acquire openai#rpm", fails=True)
        expect("capacity" in said, "the caller's error does not name the attribute", said)
        report = this.sweep()
        expect(
            report["unreadable_buckets"] == 1 and "openai#rpm" in report["unreadable"],
            "the sweep does not name the bucket",
            report,
        )
        said = this.shell("sluice doctor", fails=True)
        expect("openai#rpm" in said and "capacity" in said, "doctor does not name row and attribute", said)
        this.begin("mended")
        this.shell(of_runbook("unreadable-buckets", "get-item", "update-item"))
        this.shell("sluice acquire openai#rpm")
        this.sweep()
        return (
            this.phases,
            "every acquire failed and named the attribute; the runbook's `update-item` mended the row",
        )


def reconciler_disabled(lab: Lab) -> Seen:
    with day(lab, "disabled") as this:
        this.table.put([slots(BUCKET, 5, 5)])
        this.sweep()
        arn = lab.aws.client("lambda").get_function(FunctionName=this.function)["Configuration"][
            "FunctionArn"
        ]
        deploy.schedule(lab.aws, this.function, arn)
        this.begin("broken")
        lab.aws.client("events").disable_rule(Name=this.function)
        this.table.put([slots(BUCKET, 5, 4), lease(BUCKET, 1)])
        logged = len(deploy.log(lab.aws, this.function))
        time.sleep(65)
        expect(
            len(deploy.log(lab.aws, this.function)) == logged,
            "the disabled rule, of every minute, started a run",
        )
        state = of_runbook("no-sweep", "describe-rule").split("#")[0]
        expect("DISABLED" in this.shell(state), "the first command does not show that the rule is disabled")
        this.shell(of_runbook("no-sweep", "get-function-concurrency"))
        this.shell(f"timeout 10 {of_runbook('no-sweep', 'reconcile --interval')}", fails=True)
        expect(
            this.table.tokens(BUCKET) == "5", "the sweep by hand gave nothing back", this.table.tokens(BUCKET)
        )
        this.begin("mended")
        this.shell(of_runbook("no-sweep", "describe-rule").split("#")[1])
        expect("ENABLED" in this.shell(state), "the rule is not enabled again")
        this.sweep()
        lab.aws.client("events").disable_rule(Name=this.function)
        return (
            this.phases,
            "a disabled rule of every minute started nothing in 65 s; `sluice reconcile --interval` gave a "
            "slot back meanwhile",
        )


def role_denied(lab: Lab) -> Seen:
    with day(lab, "denied") as this:
        this.table.put([slots(BUCKET, 5, 4), lease(BUCKET, 1)])
        # What Terraform plans, through the evaluator.
        rights = [judged.planned("aws_iam_role_policy")["policy"]]
        this.gate.rights = rights
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "with the planned rights the slot is not back")
        this.begin("broken")
        this.gate.rights = [{"Statement": []}]
        this.table.put([slots(BUCKET, 5, 4), lease(BUCKET, 2)])
        said = this.failing_sweep()
        expect("not authorized to perform: dynamodb:" in said, "the error does not name the right", said)
        log = deploy.log(lab.aws, this.function)
        expect(
            any("reconciler.failed" in line and "dynamodb:" in line for line in log),
            "the log does not name the right",
        )
        dead_letters_are_read_and_purged(this)
        said = this.shell("sluice doctor", fails=True)
        expect(
            "dynamodb:Scan" in said or "dynamodb:GetItem" in said,
            "doctor with that role does not name the right",
            said,
        )
        this.begin("mended")
        this.gate.rights = rights
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "with the rights again the slot is not back")
        return (
            this.phases,
            "log and doctor name the missing right; the next run after the mend gave the slot back",
        )


def table_gone(lab: Lab) -> Seen:
    with day(lab, "gone") as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        this.db.delete_table(TableName=TABLE)
        said = this.shell("sluice acquire openai#rpm", fails=True)
        expect(TABLE in said, "the caller's error does not name the table", said)
        said = this.failing_sweep()
        expect(TABLE in said, "the run's error does not name the table", said)
        this.begin("mended")
        # `After a disaster`: a new table, and the limits of the file.
        this.table.create()
        this.shell(LIMITS)
        this.sweep()
        this.shell(f"sluice run {BUCKET} openai#rpm -- true")
        return this.phases, "callers and the run name the table; a new table and `buckets apply` were enough"


def table_throttled(lab: Lab) -> Seen:
    with day(lab, "throttled", timeout_secs=12) as this:
        this.shell(LIMITS)
        this.sweep()
        calls = this.caller("calls", BUCKET, 30, SLUICE_LEASE_TTL="10")
        time.sleep(3)
        this.begin("broken")
        this.gate.throttled = ("UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems")
        began = time.monotonic()
        said = this.shell(f"sluice run {BUCKET} --wait 2s -- true", fails=None)
        waited = time.monotonic() - began
        ended = this.try_sweep()
        time.sleep(max(0.0, 12 - (time.monotonic() - began)))
        this.gate.throttled = ()
        this.begin("mended")
        counts = this.heard(calls)
        expect(counts["after"] > 5, "the caller did not go on by itself", counts)
        time.sleep(13)
        this.sweep()
        left = (this.table.tokens(BUCKET), this.table.leases())
        expect(left == ("5", set()), "a slot is lost for good", left)
        seen = f"{counts['granted']} grants and {counts['errors']} errors; it went on; every slot is back"
        quick = f"A caller that waits for 2 s ended after {waited:.1f} s: {first_line(said)}"
        return this.phases, f"{seen}. {quick}. The sweep: {ended[:80]}"


def dynamodb_silent(lab: Lab) -> Seen:
    with day(lab, "silent", timeout_secs=12) as this:
        return without_dynamodb(this, this.gate.silent.set, this.gate.silent.clear)


def dynamodb_fails(lab: Lab) -> Seen:
    with day(lab, "failing", timeout_secs=12) as this:
        return without_dynamodb(
            this,
            lambda: setattr(this.gate, "is_failing", True),
            lambda: setattr(this.gate, "is_failing", False),
        )


def without_dynamodb(this: Day, take_away: Callable, give_back: Callable) -> Seen:
    this.shell(LIMITS)
    this.sweep()
    calls = this.caller("calls", "openai#rpm", 34)
    time.sleep(3)
    this.begin("broken")
    take_away()
    doctor: list[str] = []
    asks = threading.Thread(target=lambda: doctor.append(this.shell("timeout 30 sluice doctor", fails=None)))
    asks.start()
    began = time.monotonic()
    failed = this.failing_sweep()
    # Callers print every ten seconds.
    time.sleep(max(0.0, 12 - (time.monotonic() - began)))
    lasted = time.monotonic() - began
    give_back()
    this.begin("mended")
    asks.join()
    counts = this.heard(calls)
    expect(
        counts["after"] > 0 and counts["errors"] > 0,
        "the caller did not fail, or did not go on by itself",
        counts,
    )
    this.sweep()
    failures = (
        f"{counts['errors']} calls failed in {lasted:.0f} s, the slowest after {counts['slowest']:.1f} s"
    )
    went = f"{failures}; {counts['after']} went on by themselves"
    return this.phases, f"{went}. Doctor: {first_line(doctor[0])}. The run: {failed[:80]}"


def clock_off(lab: Lab) -> Seen:
    with day(lab, "clock") as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        this.gate.ahead = HOUR
        report = this.sweep()
        expect(
            abs(report["clock_offset_ms"] - HOUR * 1000) < 5_000, "the sweep does not see the offset", report
        )
        this.shell(f"sluice run {BUCKET} openai#rpm -- true")
        said = this.shell("sluice doctor", fails=True)
        expect("clock" in said, "doctor does not name the clock", said)
        this.begin("mended")
        this.gate.ahead = 0
        # The bucket's anchor is an hour ahead now.
        began = time.monotonic()
        this.shell("sluice run openai#rpm --wait 20s -- true")
        waited = time.monotonic() - began
        this.sweep()
        return (
            this.phases,
            f"calls went on; doctor names the clock; the first call after the clocks agreed waited "
            f"{waited:.1f} s",
        )


def slots_held(lab: Lab) -> Seen:
    """100 slots whose holders renew and do nothing."""
    bucket = "leaky#concurrent"
    with day(lab, "held") as this:
        this.table.put([slots(bucket, 120, 120)])
        this.sweep()
        this.sweep()
        this.begin("broken")
        leases = [lease(bucket, number, ends_in=3 * HOUR) for number in range(100)]
        this.table.put(leases)
        this.table.set_tokens(bucket, 20)
        expect(nothing_moves(this, bucket) == 100, "the sweeps do not suspect the leak")
        said = this.shell(of_runbook("leak", "sluice leases --json"))
        expect(said.count(bucket) >= 100, "`sluice leases` does not show the holders", said[:300])
        this.begin("mended")
        # One by hand, and the holders of the others are ended: nobody renews their leases.
        example = {"elevenlabs#concurrent#0193...": f"{bucket}#00000007"}
        this.shell(of_runbook("leak", "delete-item", "reconcile --once", changed=example))
        expect(
            this.table.tokens(bucket) == "21",
            "the slot is not back after two sweeps",
            this.table.tokens(bucket),
        )
        this.table.put([lease(bucket, number) for number in range(100) if number != 7])
        this.sweep()
        expect(this.table.tokens(bucket) == "120", "slots are not back", this.table.tokens(bucket))
        this.sweep()
        return (
            this.phases,
            "`sluice leases` shows all holders; one lease given back by hand came back with the second "
            "sweep, as written",
        )


def nothing_moves(this: Day, bucket: str) -> float:
    """Sweeps until they suspect a leak; of how many slots. Each finds the load row an interval older."""
    leaked = this.sweep()["leaked"]
    for _ in range(8):
        if leaked:
            break
        earlier(this, f"load#{bucket}", judged.INTERVAL)
        leaked = this.sweep()["leaked"]
    return leaked.get(bucket, 0.0)


def earlier(this: Day, row: str, seconds: int) -> None:
    """Moves the instants of a load row back."""
    of_row = this.table.rows()[row]
    for name in ("measured_at", "pending_since", "departed_at", "still_since"):
        if float(of_row.get(name, {"N": "0"})["N"]):
            change = {
                "UpdateExpression": f"SET {name} = {name} - :s",
                "ExpressionAttributeValues": {":s": {"N": str(seconds)}},
            }
            this.db.update_item(TableName=TABLE, Key=key(row), **change)


def slots_lost(lab: Lab) -> Seen:
    """100 slots that no lease explains."""
    bucket = "leaky#concurrent"
    with day(lab, "lost") as this:
        this.table.put([slots(bucket, 120, 120)])
        this.sweep()
        this.sweep()
        this.begin("broken")
        this.table.set_tokens(bucket, 20)
        found = this.sweep()
        expect(found["drift"] == {bucket: 100.0}, "the sweep does not find the drift", found)
        corrected = this.sweep()
        expect(corrected["corrected"] == {bucket: 100.0}, "the second sweep does not correct it", corrected)
        this.begin("mended")
        this.sweep()
        expect(this.table.tokens(bucket) == "120", "slots are not back", this.table.tokens(bucket))
        return this.phases, "the second sweep gave all slots back: nobody has to act"


def lease_row_broken(lab: Lab) -> Seen:
    with day(lab, "lease") as this:
        this.table.put([slots(BUCKET, 5, 5)])
        this.sweep()
        this.sweep()
        this.begin("broken")
        this.table.put([slots(BUCKET, 5, 4), lease(BUCKET, 1) | {"cost": {"S": "many"}}])
        report = this.sweep()
        expect(
            report["unparsable"] == 1 and report["restored"] == 0,
            "the sweep does not report the lease",
            report,
        )
        name = f"lease#{BUCKET}#00000001"
        said = this.shell("sluice doctor", fails=True)
        expect(name in said and "cost" in said, "doctor does not name row and attribute", said)
        this.begin("mended")
        example = {"elevenlabs#concurrent#0193...": f"{BUCKET}#00000001"}
        this.shell(of_runbook("leak", "delete-item", changed=example))
        this.sweep()
        this.sweep()
        this.sweep()
        expect(
            this.table.tokens(BUCKET) == "5",
            "the slot is not back",
            this.table.tokens(BUCKET),
        )
        return (
            this.phases,
            "doctor names row and attribute; the row is deleted, and the second sweep gives the slot back",
        )


def callers_crash(lab: Lab) -> Seen:
    """Four in each interval of the schedule."""
    with day(lab, "crash") as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        crash(this, 4)
        time.sleep(4)
        report = this.sweep()
        expect(report["restored_slots"] == 4, "the sweep does not give the slots back", report)
        shown = this.shell("sluice watch --once", COLUMNS="130")
        expect(BUCKET in shown, "`sluice watch` does not show the bucket", shown)
        this.begin("mended")
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "slots are not back", this.table.tokens(BUCKET))
        return this.phases, "the next sweep gave all four slots back"


def crash(this: Day, callers: int) -> None:
    """Callers that are killed while each holds a slot, with leases of a second."""
    command = ["bash", "-c", f"exec sluice acquire {BUCKET} --hold 60s"]
    free = int(this.table.tokens(BUCKET))
    environment = this.environment(SLUICE_LEASE_TTL="1s", SLUICE_SELF_HEAL="off")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    holders = [subprocess.Popen(command, env=environment, **quiet) for _ in range(callers)]
    try:
        end = time.monotonic() + 20
        while int(this.table.tokens(BUCKET)) > free - callers:
            expect(time.monotonic() < end, "the callers do not hold their slots")
            time.sleep(0.1)
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def holder_frozen(lab: Lab) -> Seen:
    """A process that stands still for longer than its lease lasts, and goes on."""
    with day(lab, "frozen") as this:
        this.shell(LIMITS)
        this.sweep()
        this.sweep()
        this.begin("broken")
        holder = this.caller("holds", BUCKET, 6, SLUICE_LEASE_TTL="2s")
        end = time.monotonic() + 10
        while this.table.tokens(BUCKET) == "5":
            expect(time.monotonic() < end, "the caller does not hold a slot")
            time.sleep(0.1)
        # Until the holder has its answer: it would take another slot for one whose lease has ended.
        time.sleep(0.5)
        holder.send_signal(signal.SIGSTOP)
        time.sleep(5)
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "the slot is not given back", this.table.tokens(BUCKET))
        holder.send_signal(signal.SIGCONT)
        counts = this.heard(holder)
        expect(counts["lost"] == 1, "the holder does not know that its lease is gone", counts)
        report = this.sweep()
        expect(report["outlived"] == 1, "the sweep does not report the holder", report)
        this.begin("mended")
        this.sweep()
        expect(
            this.table.tokens(BUCKET) == "5", "the late release changed the bucket", this.table.tokens(BUCKET)
        )
        return (
            this.phases,
            "the slot was given back once; the holder's late release changed nothing",
        )


def given_back_twice(lab: Lab) -> Seen:
    """A client that gives slots back and leaves its leases."""
    with day(lab, "twice") as this:
        this.table.put([slots(BUCKET, 5, 5)])
        this.sweep()
        this.begin("broken")
        this.table.put([lease(BUCKET, 1)])
        report = this.sweep()
        expect(report["already_capped"] == 1, "the sweep does not report the lease", report)
        this.begin("mended")
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "the bucket has another level", this.table.tokens(BUCKET))
        return this.phases, "the lease was deleted, and no slot was added"


def vendor_hangs(lab: Lab) -> Seen:
    """Every slot is held and renewed by calls that do not end; requests with an SLO are shed."""
    with day(lab, "hangs") as this:
        this.table.put([slots(BUCKET, 5, 5)])
        this.sweep()
        this.begin("broken")
        this.table.put([slots(BUCKET, 5, 0), *[lease(BUCKET, number, ends_in=HOUR) for number in range(5)]])
        expect(nothing_moves(this, BUCKET) == 5, "the sweeps do not suspect a leak")
        counts = this.heard(this.caller("asks", BUCKET, 12, SLUICE_STALENESS="2s"))
        expect(counts["shed"] > 10, "requests are not shed", counts)
        said = this.shell("sluice leases")
        expect(said.count(BUCKET) >= 5, "`sluice leases` does not show the holders", said)
        this.begin("mended")
        this.table.put([lease(BUCKET, number) for number in range(5)])
        this.sweep()
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "slots are not back", this.table.tokens(BUCKET))
        seen = f"{counts['shed']} requests were shed, {counts['admitted']} let through"
        return this.phases, seen


def dynamodb_slow(lab: Lab) -> Seen:
    """So slow that no sweep is done in its time."""
    with day(lab, "slow", timeout_secs=3) as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        this.gate.delay_secs = 0.5
        report = this.sweep()
        expect(
            report["deadline_hit"] and report["segments_unscanned"] > 0, "the sweep was done in time", report
        )
        this.begin("mended")
        this.gate.delay_secs = 0.0
        this.sweep()
        return (
            this.phases,
            f"after {report['duration_ms']} ms {report['segments_unscanned']} of 16 segments were unscanned",
        )


def noisy_product(lab: Lab) -> Seen:
    """One that prints metrics, and one that heals itself: its refusals are in the load row."""
    with day(lab, "noisy") as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        noisy = [
            this.caller("hammers", BUCKET, 24),
            this.caller("hammers", BUCKET, 24, SLUICE_SELF_HEAL="on"),
        ]
        time.sleep(4)
        began = time.monotonic()
        quiet = this.shell(f"sluice run {BUCKET} --wait 8s -- echo served", fails=None, SLUICE_CALLER="quiet")
        waited = time.monotonic() - began
        # The first sweep that meets the load row has nothing to compare its counts with.
        this.sweep()
        shown = this.shell("sluice watch --once", COLUMNS="130")
        refused = sum(this.heard(one)["refused"] for one in noisy)
        report = this.sweep()
        expect(report["caller_refusals"] > 0, "the sweep does not publish refusals", report)
        this.begin("mended")
        this.sweep()
        had = "had its slot" if "served" in quiet else "was refused"
        line = next(one for one in shown.splitlines() if BUCKET in one)
        seen = f"{refused} refusals in 24 s. A quiet caller that waits {had} after {waited:.1f} s"
        return this.phases, f"{seen}. Watch: {' '.join(line.split())[:80]}"


def poisoned_reply(lab: Lab) -> Seen:
    with day(lab, "poisoned") as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        this.heard(this.caller("poisoned", "openai#rpm", 12))
        expect(this.total("VendorRefusals") == 12, "the vendor's refusals are not printed")
        this.sweep()
        shown = this.shell("sluice buckets show openai#rpm")
        expect("cool" in shown.lower(), "`sluice buckets show` does not show the cool-down", shown)
        this.shell("sluice acquire openai#rpm", fails=True)
        this.begin("mended")
        this.shell(of_runbook("A cool-down that is too long", "cool-down"))
        this.shell(of_runbook("A level or a limit that is too low", "refill openai#rpm   "))
        this.shell("sluice acquire openai#rpm")
        this.sweep()
        show = next(line for line in shown.splitlines() if "cool" in line.lower())
        return this.phases, f"12 replies: {' '.join(show.split())[:80]}; the runbook's commands ended it"


def restored_backup(lab: Lab) -> Seen:
    with day(lab, "restored", in_ministack=True) as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        # When the copy is made, three slots are held; their calls end soon after, and so do their leases.
        this.table.put([slots(BUCKET, 5, 2), *[lease(BUCKET, number, ends_in=12) for number in (1, 2, 3)]])
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        script = of_runbook(
            "After a disaster",
            "restore-table",
            "wait table-exists",
            "buckets list",
            changed={"2026-01-31T12:00:00Z": now},
        )
        said = this.shell(script)
        expect(BUCKET in said and "openai#tpm" in said, "the copy's limits are not listed", said)
        # Callers have to work on the copy. Of the runbook's five steps: the first without deletion protection, the
        # second for 20 s, the fifth. In place of the third and fourth, function and callers are told the copy's name.
        this.table = Table(this.db, f"{TABLE}-then")
        this.shell(
            'aws dynamodb update-time-to-live --table-name "$table" --time-to-live-specification '
            "Enabled=true,AttributeName=purge_at"
        )
        names = [row for row in this.table.rows() if not row.startswith(("lease#", "load#", "ticket#"))]
        for row in names:
            this.shell(f"sluice cool-down {row} 20s")
        this.shell("sluice acquire openai#rpm", fails=True)
        this.shell(f"sluice acquire {BUCKET}", fails=True)
        functions = lab.aws.client("lambda")
        variables = functions.get_function_configuration(FunctionName=this.function)["Environment"][
            "Variables"
        ]
        functions.update_function_configuration(
            FunctionName=this.function,
            Environment={"Variables": variables | {"SLUICE_TABLE_NAME": this.table.name}},
        )
        reports = [this.sweep()]
        time.sleep(21)
        reports += [this.sweep(), this.sweep()]
        expect(this.table.tokens(BUCKET) == "5" and not this.table.leases(), "slots are not back", reports)
        this.begin("mended")
        this.shell(LIMITS)
        doctor = this.shell("sluice doctor", fails=None)
        expect(
            this.table.name in doctor and "overdue" not in doctor and "lost" not in doctor,
            "doctor does not look at the copy, or shows drift or overdue leases",
            doctor,
        )
        this.shell(f"sluice run {BUCKET} openai#rpm -- true")
        this.sweep()
        back = sum(one["restored_slots"] for one in reports)
        return (
            this.phases,
            f"nothing was granted while {len(names)} buckets cooled down; sweeps gave back {back} "
            f"slots as the copied leases ended",
        )


def dead_letters_are_read_and_purged(this: Day) -> None:
    """The event of a failed run, put there by hand: the local AWS knows no destinations."""
    queues = this.lab.aws.client("sqs")
    queue = queues.create_queue(QueueName=f"{this.function}-dead-letters")["QueueUrl"]
    queues.send_message(QueueUrl=queue, MessageBody='{"requestContext": {"condition": "RetriesExhausted"}}')
    # Version 1 of the CLI sends requests of SQS to AWS, whatever AWS_ENDPOINT_URL says.
    local = {"aws sqs": 'aws --endpoint-url "$AWS_ENDPOINT_URL" sqs'}
    read = of_runbook("dead-letters", "get-queue-url", "receive-message", changed=local)
    expect("RetriesExhausted" in this.shell(read), "the commands do not show the event")
    this.shell(of_runbook("dead-letters", "get-queue-url", "purge-queue", changed=local))
    expect("RetriesExhausted" not in this.shell(read), "the queue is not empty")


def later_protocol(lab: Lab) -> Seen:
    """A bucket requires a protocol that no program of today knows: this version is in the place of an old one.
    Programs of an earlier commit beside these: tests/compatible.
    """
    with day(lab, "protocol") as this:
        this.table.put([slots(BUCKET, 5, 4), lease(BUCKET, 1), rate("openai#rpm", 500)])
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "the slot is not back")
        this.begin("broken")
        this.table.put([slots(BUCKET, 5, 4) | {"protocol": {"N": "99"}}, lease(BUCKET, 2)])
        before = without_load(this)
        said = this.shell(f"sluice acquire {BUCKET}", fails=True)
        expect("protocol" in said and "99" in said, "the error does not name the protocol", said)
        report = this.sweep()
        expect(
            report["unreadable_buckets"] == 1 and report["restored_slots"] == 0,
            "the old sweep gave back what it does not understand",
            report,
        )
        expect(without_load(this) == before, "a row was changed")
        this.shell("sluice acquire openai#rpm")
        doctor = this.shell("sluice doctor", fails=True)
        expect("protocol" in doctor, "doctor does not name the protocol", doctor)
        this.begin("mended")
        # Versions: in an emergency, the attribute is removed by hand.
        this.db.update_item(TableName=TABLE, Key=key(BUCKET), UpdateExpression="REMOVE protocol")
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "without the attribute the slot is not back")
        return (
            this.phases,
            "the caller's error and doctor name the protocol; no row of the bucket was changed; other "
            "buckets went on",
        )


def without_load(this: Day) -> dict:
    return {name: row for name, row in this.table.rows().items() if not name.startswith("load#")}


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
