"""The table and the reconciler: rows that cannot be read, rights and rules that are gone, a restored backup."""

import time

import deploy
import judged
from day import TABLE, Day, day, expect, key, of_runbook, rate
from days.game_day import BUCKET, LIMITS, Seen
from lab import Lab, Table, lease, slots


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
    """A bucket requires a protocol that no program of today knows: this version stands for an old one.
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
