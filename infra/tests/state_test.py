#!/usr/bin/env python3
"""`task infra:plan`, `apply` and `destroy` as people type them, with stand-ins for aws, terraform and the
build of the function.

The stand-ins write down what they were asked, and answer from a small account: buckets, their settings, a
table. Needs task.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

STAND_IN = """#!/usr/bin/env python3
import json, os, pathlib, sys

program, asked = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
folder = pathlib.Path(os.environ["STAND_INS"])
account = json.loads((folder / "account.json").read_text())
data = os.environ.get("TF_DATA_DIR", "")
with open(folder / "log", "a") as log:
    log.write(json.dumps([program, *asked, data] if program == "terraform" else [program, *asked]) + "\\n")


def option(name):
    return asked[asked.index(name) + 1] if name in asked else None


def answer(text="", status=0, error=""):
    (folder / "account.json").write_text(json.dumps(account))
    print(text)
    print(error, file=sys.stderr)
    sys.exit(status)


if program == "rustc":
    answer(str(folder) if "--print" in asked else "host: x86_64-unknown-linux-gnu")
if program in ("cargo", "zig"):
    answer("1.0.0")
if program == "terraform":
    if "output" in asked:
        # The state is of prod, unless the account says otherwise.
        table = account["table"] if data.split("/")[-1].startswith("prod") or account["one_state"] else ""
        value = account["function"] if "reconciler_function_name" in asked else table
        answer(value, 0 if value else 1)
    if "state" in asked:
        answer(account["left"])
    answer()

if asked == ["--version"]:
    answer(account["cli"] + " Python/3.13.7 Linux/6.1")
verb = " ".join(asked[:2])
bucket, buckets = option("--bucket"), account["buckets"]
if verb == "sts get-caller-identity":
    if not account["login"]:
        answer(status=255, error="Unable to locate credentials")
    answer("111122223333\\tarn:aws:iam::111122223333:user/someone")
if verb == "dynamodb describe-table":
    if account["protected"] is None:
        answer(status=254, error=account["table_error"])
    answer("True" if account["protected"] else "False")
if verb == "s3api head-bucket":
    if bucket not in buckets:
        answer(status=254, error="An error occurred (404) when calling the HeadBucket operation: Not Found")
    if buckets[bucket]["owner"] != option("--expected-bucket-owner"):
        answer(status=254, error=f"An error occurred (403) when calling the HeadBucket operation for {bucket}: Forbidden")
    answer()
if verb == "s3api get-bucket-location":
    answer(buckets[bucket].get("region", option("--region")))
if verb == "s3api create-bucket":
    buckets[bucket] = {"owner": "111122223333", "where": option("--create-bucket-configuration")}
    answer("{}")
if verb == "s3api get-bucket-versioning":
    answer("Enabled" if "put-bucket-versioning" in buckets[bucket] else "None")
if verb.startswith("s3api put-"):
    if account["cut_off_at"] == asked[1]:
        account["cut_off_at"] = None
        answer(status=255, error="connection was closed")
    buckets[bucket][asked[1]] = asked[asked.index("--region") + 2 :]
    answer()
if verb == "lambda invoke":
    if option("--function-name") != "sluice-reconciler-prod:live":
        answer(status=254, error="An error occurred (ResourceNotFoundException)")
    pathlib.Path(asked[-1]).write_text(account["report"])
    answer(account["function_error"])
if verb == "cloudwatch describe-alarms":
    if "--alarm-names" in asked:
        answer(account["topic"])
    if "ActionsEnabled" in option("--query"):
        answer(account["off"])
    state = account["no_sweep"].pop(0) if len(account["no_sweep"]) > 1 else account["no_sweep"][0]
    lines = [f"sluice-prod-no-sweep\\t{state}", *account["alarms"]]
    answer("\\n".join(one for one in lines if one.startswith(option("--alarm-name-prefix"))))
if verb == "sns list-subscriptions-by-topic":
    answer(account["subscriptions"])
if verb.startswith("lambda "):
    live = account["live"]
    if live is None or option("--function-name") != "sluice-reconciler-prod":
        answer(status=254, error="An error occurred (ResourceNotFoundException)")
    if verb == "lambda get-alias":
        answer(f"{live}\\tr{live}")
    if verb == "lambda list-versions-by-function":
        days = {one: one % 9 + 1 for one in account["versions"]} | {"$LATEST": 9}
        answer("\\n".join(f"{one}\\t2026-11-0{day}T10:00:00.000+0000" for one, day in days.items()))
    if verb == "lambda update-alias":
        if option("--revision-id") != f"r{live}" or account["raced"]:
            answer(status=254, error="An error occurred (PreconditionFailedException)")
        account["live"] = int(option("--function-version"))
        answer("{}")
answer(status=1, error=f"the stand-in does not know {asked}")
"""

BUCKET = "sluice-terraform-state-111122223333-eu-central-1"
TABLE = "ontopix-vendor-buckets-prod"


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        programs = self.folder / "bin"
        programs.mkdir()
        (self.folder / "lib/rustlib/aarch64-unknown-linux-gnu/lib").mkdir(parents=True)
        for name in ("aws", "terraform", "cargo", "zig", "rustc"):
            (programs / name).write_text(STAND_IN)
            (programs / name).chmod(0o755)
        self.account(
            login=True, buckets={}, table=TABLE, protected=True, cut_off_at=None, left="", table_error=""
        )
        self.account(live=11, versions=[2, 9, 10, 11, 12], raced=False, function="")
        self.account(cli="aws-cli/2.31.0", one_state=False)
        topic = "arn:aws:sns:eu-central-1:111122223333:now"
        self.account(function_error="None", report='{"restored":0}', topic=topic, no_sweep=["OK"])
        self.account(alarms=["sluice-prod-leak\tOK"], subscriptions=f"email\t{topic}:0193", off="")

    def account(self, **changes):
        file = self.folder / "account.json"
        now = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(now | changes))

    def buckets(self):
        return json.loads((self.folder / "account.json").read_text())["buckets"]

    def task(self, *words, **told):
        """Runs a task; what terraform was asked, without init."""
        self.typed("task", *words, **told)
        return [
            call[1:]
            for call in self.log
            if call[0] == "terraform" and call[2] in ("plan", "apply", "destroy")
        ]

    def typed(self, *command, says=None, answers="", fails=False, clone=ROOT, **shell):
        """Runs a command, and returns what it said."""
        (self.folder / "log").write_text("")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "TF_", "STATE_", "CREATE_", "SLUICE_"))
        }
        environment |= {
            "STAND_INS": str(self.folder),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "TASK_TEMP_DIR": str(self.folder),
        }
        environment |= shell
        done = subprocess.run(
            command,
            cwd=clone,
            env=environment,
            input=answers,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode != 0, fails, said)
        self.assertIn(says or "", said)
        asked = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        self.log = [call for call in asked if call != ["aws", "--version"]]
        return said

    def inits(self):
        return [call[1:] for call in self.log if call[0] == "terraform" and call[2] == "init"]

    def test_the_list_of_tasks_fits_on_a_screen(self):
        """What is not listed says what it does, if it is asked."""
        list_tasks = ["task", "--color=false", "--list"]
        listed = subprocess.run(list_tasks, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        self.assertLessEqual(len(listed.splitlines()), 34, listed)
        for name in ("infra:apply", "infra:verify", "infra:rollback", "buckets:apply", "test:compatible"):
            self.assertIn(f"* {name}:", listed)
        every = re.findall(r"^  ([a-z][a-z:0-9-]*):\n((?:    .*\n|\n)*)", (ROOT / "Taskfile.yml").read_text(), re.M)
        self.assertGreater(len(every), 50)
        silent = [name for name, body in every if not re.search(r"^    (desc|summary): ", body, re.M)]
        self.assertEqual([name for name in silent if name != "default" and not name.endswith(":pre")], [])

    def test_apply_works_with_nothing_but_credentials(self):
        (applied,) = self.task(
            "infra:apply",
            "ENV=pre",
            answers="yes\n",
            says=f"Create {BUCKET} (versioned, encrypted, private)?",
        )
        self.assertEqual(applied[:3], ["-chdir=infra", "apply", "-var-file=envs/pre.tfvars"])
        self.assertIn("-var=region=eu-central-1", applied)
        made = self.buckets()[BUCKET]
        self.assertEqual(made["where"], "LocationConstraint=eu-central-1")
        self.assertIn("Status=Enabled", made["put-bucket-versioning"])
        self.assertIn("AES256", made["put-bucket-encryption"][1])
        self.assertEqual(made["put-public-access-block"][1].count("=true"), 4)
        policy = json.loads(made["put-bucket-policy"][1])
        self.assertEqual(policy["Statement"][0]["Effect"], "Deny")
        (init,) = self.inits()
        for setting in (
            f"bucket={BUCKET}",
            "key=sluice/eu-central-1/pre/terraform.tfstate",
            "region=eu-central-1",
            "encrypt=true",
            "use_lockfile=true",
        ):
            self.assertIn(f"-backend-config={setting}", init)
        # The second time nobody asks, and nothing is changed.
        self.task("infra:apply", "ENV=pre")
        self.assertFalse(
            [call for call in self.log if call[0] == "aws" and call[2].startswith(("create", "put"))]
        )

    def test_without_an_answer_nothing_is_created(self):
        for answers in ("", "no\n", "y\n"):
            self.assertEqual(
                self.task("infra:apply", "ENV=pre", answers=answers, fails=True, says="nothing was created"),
                [],
            )
            self.assertEqual(self.buckets(), {})

    def test_a_first_time_that_was_cut_off_is_finished(self):
        for cut_off_at in (
            "put-public-access-block",
            "put-bucket-encryption",
            "put-bucket-policy",
            "put-bucket-versioning",
        ):
            self.account(buckets={}, cut_off_at=cut_off_at)
            self.task("infra:apply", "ENV=pre", "CREATE_STATE_BUCKET=yes", answers="yes\n", fails=True)
            self.assertEqual(len(self.task("infra:apply", "ENV=pre")), 1)
            self.assertEqual(
                sum(setting.startswith("put-") for setting in self.buckets()[BUCKET]), 4, cut_off_at
            )

    def test_a_bucket_that_is_given_is_used_and_never_made_or_changed(self):
        self.task("infra:apply", "ENV=pre", "STATE_BUCKET=mine", fails=True, says="there is no bucket mine")
        self.account(buckets={"mine": {"owner": "111122223333"}})
        self.task("infra:apply", "ENV=pre", "STATE_BUCKET=mine")
        self.assertIn("-backend-config=bucket=mine", self.inits()[0])
        self.assertEqual(self.buckets(), {"mine": {"owner": "111122223333"}})

    def test_a_bucket_of_another_account_is_refused(self):
        self.account(buckets={BUCKET: {"owner": "444455556666"}})
        self.assertEqual(
            self.task("infra:apply", "ENV=pre", fails=True, says="is not account 111122223333's"), []
        )

    def test_without_credentials_the_message_says_so(self):
        self.account(login=False)
        self.assertEqual(
            self.task("infra:apply", "ENV=pre", fails=True, says="AWS does not know who you are"), []
        )
        self.assertFalse([call for call in self.log if call[:2] == ["cargo", "lambda"]], "a build is for nobody")

    def test_each_environment_and_region_has_its_own_key_and_folder(self):
        settled = {"owner": "111122223333", "put-bucket-versioning": []}
        self.account(buckets={BUCKET: settled, BUCKET.replace("eu-central-1", "us-east-1"): settled})
        keys, folders = set(), set()
        for words in (["ENV=sandbox"], ["ENV=pre"], ["ENV=prod"], ["ENV=prod", "REGION=us-east-1"]):
            (applied,) = self.task("infra:apply", *words)
            (init,) = self.inits()
            keys.add(next(one for one in init if one.startswith("-backend-config=key=")))
            self.assertEqual(init[-1], applied[-1], "init and apply use one folder")
            self.assertTrue(applied[-1].startswith(str(ROOT / "infra/.terraform/")))
            folders.add(applied[-1])
        self.assertEqual((len(keys), len(folders)), (4, 4))
        self.assertIn("-var=region=us-east-1", applied)

    SETTLED = {"owner": "111122223333", "put-bucket-versioning": []}

    def test_each_prefix_has_its_own_key_and_folder(self):
        """A second installation in the same account would else be planned on the state of the first."""
        self.account(buckets={BUCKET: self.SETTLED})
        key = "-backend-config=key=sluice/eu-central-1/{}prod/terraform.tfstate"
        (first,) = self.task("infra:apply", "ENV=prod")
        self.assertIn(key.format(""), self.inits()[0])
        (second,) = self.task("infra:apply", "ENV=prod", TF_VAR_name_prefix="acme-")
        self.assertIn(key.format("acme-"), self.inits()[0])
        self.assertEqual(second[-1], first[-1].replace("/prod-", "/acme-prod-"))
        clone = self.clone_with(name_prefix='"other-"')
        (third,) = self.task("infra:apply", "ENV=prod", clone=clone, TF_VAR_name_prefix="acme-")
        self.assertIn(key.format("other-"), self.inits()[0], "a file wins over the shell, as in Terraform")
        self.assertTrue(third[-1].endswith("/other-prod-eu-central-1"))

    def test_a_state_of_another_table_is_refused(self):
        self.account(buckets={BUCKET: self.SETTLED}, one_state=True)
        said = "this state is of the table ontopix-vendor-buckets-prod, and the variables name"
        for words, shell in ((["ENV=prod"], {"TF_VAR_name_prefix": "acme-"}), (["ENV=pre"], {})):
            self.assertEqual(self.task("infra:apply", *words, fails=True, says=said, **shell), [])

    def test_a_bucket_of_another_region_is_asked_there(self):
        self.account(buckets={"mine": self.SETTLED | {"region": "us-west-2"}})
        (applied,) = self.task("infra:apply", "ENV=pre", "STATE_BUCKET=mine")
        self.assertIn("-backend-config=region=us-west-2", self.inits()[0])
        self.assertIn("-var=region=eu-central-1", applied)
        # S3 says None of its first Region, and EU of an old bucket.
        for location, region in (("None", "us-east-1"), ("EU", "eu-west-1")):
            self.account(buckets={"mine": self.SETTLED | {"region": location}})
            self.task("infra:apply", "ENV=pre", "STATE_BUCKET=mine")
            self.assertIn(f"-backend-config=region={region}", self.inits()[0])

    def test_a_bucket_of_another_account_is_used_if_its_account_is_named(self):
        self.account(buckets={"mine-404": self.SETTLED | {"owner": "444455556666"}})
        refused = "is not account 111122223333's"
        words = ("infra:apply", "ENV=pre", "STATE_BUCKET=mine-404")
        self.assertEqual(self.task(*words, fails=True, says=refused), [])
        self.assertEqual(len(self.task(*words, STATE_BUCKET_OWNER="444455556666")), 1)

    def test_another_aws_cli_is_refused(self):
        self.account(buckets={BUCKET: self.SETTLED}, cli="aws-cli/1.46.3")
        says = "the AWS CLI is aws-cli/1.46.3: install version 2"
        self.assertEqual(self.task("infra:apply", "ENV=pre", fails=True, says=says), [])
        self.task("infra:rollback", "ENV=prod", "VERSION=9", fails=True, says=says)
        self.assertEqual(self.live(), 11)

    def test_a_folder_that_the_shell_names_is_refused(self):
        self.account(buckets={BUCKET: {"owner": "111122223333", "put-bucket-versioning": []}})
        said = "TF_DATA_DIR is /elsewhere"
        self.assertEqual(
            self.task("infra:apply", "ENV=pre", fails=True, says=said, TF_DATA_DIR="/elsewhere"), []
        )

    def test_the_first_region_of_aws_takes_no_location(self):
        self.task("infra:apply", "ENV=pre", "REGION=us-east-1", answers="yes\n")
        self.assertIsNone(self.buckets()[BUCKET.replace("eu-central-1", "us-east-1")]["where"])

    def test_prod_is_destroyed_by_its_name_alone_and_never_halfway(self):
        self.account(buckets={BUCKET: {"owner": "111122223333", "put-bucket-versioning": []}})
        self.assertEqual(
            self.task("infra:destroy", "ENV=prod", "--yes", fails=True, says="nothing was destroyed"), []
        )
        self.assertEqual(
            self.log, [call for call in self.log if call[0] != "aws"], "nothing is asked without CONFIRM"
        )
        wrong = "CONFIRM=ontopix-vendor-buckets-pre"
        self.assertEqual(
            self.task("infra:destroy", "ENV=prod", wrong, "--yes", fails=True, says=f"CONFIRM={TABLE}"), []
        )
        right = f"CONFIRM={TABLE}"
        self.assertEqual(
            self.task("infra:destroy", "ENV=prod", right, "--yes", fails=True, says="the table is protected"),
            [],
        )
        self.account(protected=False)
        (destroyed,) = self.task("infra:destroy", "ENV=prod", right, "--yes")
        self.assertEqual(destroyed[1:3], ["destroy", "-var-file=envs/prod.tfvars"])

    def test_what_cannot_be_told_is_not_destroyed(self):
        self.account(
            buckets={BUCKET: {"owner": "111122223333", "put-bucket-versioning": []}},
            protected=None,
            table_error="AccessDenied",
        )
        words = ("infra:destroy", "ENV=prod", f"CONFIRM={TABLE}", "--yes")
        self.assertEqual(self.task(*words, fails=True, says="cannot tell whether the table is protected"), [])
        # The rest of a destroy that was cut off after the table.
        self.account(table_error="An error occurred (ResourceNotFoundException)")
        self.assertEqual(len(self.task(*words)), 1)
        self.account(table="", left="module.sluice.module.table[0].aws_dynamodb_table.buckets")
        self.assertEqual(self.task(*words, fails=True, says="does not name the table"), [])
        self.account(left="")
        self.assertEqual(len(self.task(*words)), 1)

    def test_a_sandbox_is_destroyed_without_its_name(self):
        self.account(
            buckets={BUCKET: {"owner": "111122223333", "put-bucket-versioning": []}}, protected=False
        )
        self.assertEqual(len(self.task("infra:destroy", "ENV=sandbox", "--yes")), 1)

    def clone_with(self, **of_prod):
        """A copy of what the tasks need, with more lines in the file of prod."""
        clone = self.folder / "clone"
        for part in ("infra", "localstack", "Taskfile.yml"):
            source = ROOT / part
            clone.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(
                    source, clone / part, ignore=shutil.ignore_patterns(".terraform"), dirs_exist_ok=True
                )
            else:
                shutil.copy(source, clone / part)
        with (clone / "infra/envs/prod.tfvars").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in of_prod.items())
        return clone

    def live(self):
        return json.loads((self.folder / "account.json").read_text())["live"]

    def test_a_function_from_a_bucket_is_not_built(self):
        self.account(buckets={BUCKET: {"owner": "111122223333", "put-bucket-versioning": []}})
        self.task("infra:apply", "ENV=prod")
        self.assertTrue(
            any(call[:2] == ["cargo", "lambda"] for call in self.log), "a file of this machine is built first"
        )
        clone = self.clone_with(package_s3='{ bucket = "artifacts", key = "reconciler.zip" }')
        for command in ("infra:plan", "infra:apply"):
            self.assertEqual(len(self.task(command, "ENV=prod", clone=clone)), 1)
            self.assertFalse(
                [call for call in self.log if call[0] == "cargo"], f"{command} builds what nobody deploys"
            )

    def verify(self, says, *words, fails=False, **account):
        self.account(**account)
        self.task("infra:verify", "ENV=prod", *words, fails=fails, says=says, VERIFY_SECS="2", VERIFY_PAUSE_SECS="0.2")

    def test_an_installation_is_healthy_when_it_swept_and_somebody_would_be_paged(self):
        self.verify('swept: {"restored":0}', no_sweep=["INSUFFICIENT_DATA", "INSUFFICIENT_DATA", "OK"])
        self.verify("2 alarms in eu-central-1: none is on, no-sweep is OK")
        self.verify(":now reaches:      1 email")
        self.assertTrue(all(call[call.index("--region") + 1] == "eu-central-1" for call in self.log), self.log)

    def test_each_way_to_be_unhealthy_fails(self):
        healthy = json.loads((self.folder / "account.json").read_text())
        faults = {
            "the sweep failed (Unhandled)": {"function_error": "Unhandled", "report": "the role may not call Scan"},
            "these alarms are on: sluice-prod-leak": {"alarms": ["sluice-prod-leak\tALARM"]},
            "these alarms are on: sluice-prod-no-sweep": {"no_sweep": ["INSUFFICIENT_DATA", "ALARM"]},
            "no-sweep is still INSUFFICIENT_DATA": {"no_sweep": ["INSUFFICIENT_DATA"]},
            "no-sweep has no topic": {"topic": "None"},
            "these alarms are off": {"off": "sluice-prod-leak"},
            "has no subscription that was confirmed": {"subscriptions": "email\tPendingConfirmation"},
        }
        for says, fault in faults.items():
            self.verify(says, fails=True, **healthy | fault)
        clone = self.clone_with(name_prefix='"acme-"')
        self.account(**healthy)
        self.task("infra:verify", "ENV=prod", clone=clone, fails=True, says="acme-sluice-reconciler-prod cannot be started")

    def program(self, name, folder=None):
        """A stand-in for `sluice` that says which table it was told."""
        file = (folder or self.folder / "bin") / name
        file.write_text('#!/bin/sh\necho "$SLUICE_TABLE_NAME $SLUICE_AWS_REGION $SLUICE_ENV $*"\n')
        file.chmod(0o755)

    def test_limits_go_to_the_table_of_the_installation(self):
        """With its prefix and in its Region, whatever the shell has."""
        self.program("limits")
        told = ("buckets:apply", "ENV=prod", "SLUICE=limits")
        clone = self.clone_with(name_prefix='"acme-"')
        self.task(*told, SLUICE_TABLE_NAME="another", says="ontopix-vendor-buckets-prod eu-central-1 prod buckets apply")
        file = f"FILE={ROOT}/buckets/prod.toml"
        self.task(*told, file, clone=clone, says="acme-ontopix-vendor-buckets-prod eu-central-1 prod")
        self.task(*told, file, "REGION=eu-west-1", clone=clone, says="acme-ontopix-vendor-buckets-prod eu-west-1 prod")

    def without_cargo(self):
        """A folder for PATH in which there is no toolchain."""
        programs = self.folder / "installed"
        programs.mkdir()
        system = "awk bash cat cut dirname env grep head mktemp paste python3 rm sed sh sleep sort tail task tr uniq wc"
        for name in system.split():
            (programs / name).symlink_to(shutil.which(name))
        for name in ("aws", "terraform"):
            shutil.copy(self.folder / "bin" / name, programs)
        return programs

    def test_without_cargo_limits_are_applied_by_the_installed_command(self):
        programs = self.without_cargo()
        missing = "neither cargo nor sluice is on PATH"
        self.task("buckets:apply", "ENV=prod", fails=True, says=missing, PATH=str(programs))
        self.program("sluice", programs)
        said = f"{TABLE} eu-central-1 prod buckets apply buckets/prod.toml"
        self.task("buckets:apply", "ENV=prod", says=said, PATH=str(programs))

    def in_region(self, region, *words, **told):
        """Each task goes to this Region."""
        limits = ("buckets:apply", "ENV=prod", f"FILE={ROOT}/buckets/prod.toml", "SLUICE=limits")
        self.task(*limits, *words, says=f"{TABLE} {region} prod", **told)
        for command in (["infra:plan"], ["infra:apply"], ["infra:destroy", f"CONFIRM={TABLE}", "--yes"]):
            (asked,) = self.task(*command, "ENV=prod", *words, **told)
            self.assertIn(f"-var=region={region}", asked)
        self.task("infra:verify", "ENV=prod", *words, says=f"alarms in {region}: none is on", **told)
        self.task("infra:rollback", "ENV=prod", *words, says=f"sluice-reconciler-prod in {region} has", **told)

    def test_one_rule_says_the_region_of_every_task(self):
        """Given, else the shell's, which `sluice` obeys too, else Terraform's, else eu-central-1."""
        everywhere = [BUCKET.replace("eu-central-1", one) for one in ("eu-central-1", "eu-west-1", "us-west-2")]
        self.account(buckets={name: self.SETTLED for name in everywhere}, protected=False)
        self.program("limits")
        clone = self.clone_with(package_s3='{ bucket = "artifacts", key = "reconciler.zip" }')
        told = {"clone": clone, "SLUICE_AWS_REGION": "us-west-2"}
        self.in_region("us-west-2", **told)
        self.in_region("eu-west-1", "REGION=eu-west-1", **told)
        self.in_region("eu-west-1", REGION="eu-west-1", **told)
        # AWS_REGION is where a process runs: many shells have one.
        self.in_region("eu-central-1", clone=clone, AWS_REGION="us-west-2")

    def test_the_steps_of_a_lost_region_lead_nowhere_else(self):
        """As the runbook has them, with a file that still names the lost Region."""
        manual = (ROOT / "docs/operations.md").read_text()
        steps = manual[manual.index("**A Region is lost.**") : manual.index("**Never add a replica**")]
        (script,) = re.findall(r"```sh\n(.*?)```", steps, re.S)
        self.account(buckets={BUCKET.replace("eu-central-1", "eu-west-1"): self.SETTLED})
        programs = self.without_cargo()
        self.program("sluice", programs)
        clone = self.clone_with(region='"eu-central-1"', package_s3='{ bucket = "artifacts", key = "reconciler.zip" }')
        shutil.copytree(ROOT / "buckets", clone / "buckets")
        said = self.typed("bash", "-euc", script, clone=clone, PATH=str(programs))
        for command in ("buckets apply buckets/prod.toml", "reconcile --once", "doctor"):
            self.assertIn(f"{TABLE} eu-west-1 prod {command}", said)
        self.assertIn("alarms in eu-west-1: none is on", said)
        self.assertIn("-var=region=eu-west-1", next(call for call in self.log if "apply" in call))
        self.assertNotIn("eu-central-1", json.dumps([call for call in self.log if "list-subscriptions-by-topic" not in call]))

    def test_a_region_that_shell_and_file_name_differently_is_refused(self):
        clone = self.clone_with(region='"eu-west-1"')
        says = 'SLUICE_AWS_REGION is us-west-2, and Terraform\'s variables for prod say region = "eu-west-1"'
        self.program("limits")
        limits = ("buckets:apply", f"FILE={ROOT}/buckets/prod.toml", "SLUICE=limits")
        commands = ("infra:plan",), ("infra:apply",), ("infra:destroy", f"CONFIRM={TABLE}"), ("infra:verify",), ("infra:rollback",)
        for command in (*commands, limits):
            self.task(*command, "ENV=prod", clone=clone, fails=True, says=says, SLUICE_AWS_REGION="us-west-2")
            self.assertEqual([call for call in self.log if call[0] in ("aws", "terraform")], [], command)

    def test_a_region_is_read_from_any_variable_of_terraform(self):
        def region(*words, **shell):
            environment = {"PATH": os.environ["PATH"], **shell}
            command = [clone / "infra/state", "region", "prod", *words]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

        clone = self.clone_with()
        file, text = clone / "infra/envs/prod.tfvars", (ROOT / "infra/envs/prod.tfvars").read_text()
        self.assertEqual(region(), "eu-central-1")
        self.assertEqual(region(TF_VAR_region="eu-west-3"), "eu-west-3")
        for line in ('region="eu-west-1"', 'region = "eu-west-1" # ours', '  region\t=\t"eu-west-1"', 'region  ="eu-west-1"'):
            file.write_text(f"{text}{line}\n")
            self.assertEqual(region(TF_VAR_region="eu-west-3"), "eu-west-1", line)
        self.assertEqual(region(SLUICE_AWS_REGION="eu-west-1"), "eu-west-1")
        self.assertEqual(region("us-east-1", SLUICE_AWS_REGION="us-west-2"), "us-east-1")
        for line in ('# region = "eu-west-1"', 'aws_region = "eu-west-1"', 'regions = ["eu-west-1"]'):
            file.write_text(f"{text}{line}\n")
            self.assertEqual(region(), "eu-central-1", line)

    def test_without_a_version_the_versions_are_listed_and_nothing_changes(self):
        self.task(
            "infra:rollback", "ENV=prod", says="11     published 2026-11-03T10:00:00.000+0000   <- live"
        )
        self.task(
            "infra:rollback", "ENV=prod", says="task infra:rollback ENV=prod REGION=eu-central-1 VERSION=..."
        )
        self.assertEqual(
            (self.live(), {call[2] for call in self.log}), (11, {"get-alias", "list-versions-by-function"})
        )

    def test_live_goes_to_the_version_that_is_chosen_and_back(self):
        back, clone = "task infra:rollback ENV=prod REGION=eu-central-1 VERSION=11", self.clone_with()
        self.task("infra:rollback", "ENV=prod", "VERSION=9", clone=clone, says=back)
        self.assertEqual(self.live(), 9)
        self.task("infra:rollback", "ENV=prod", "VERSION=10", clone=clone, says='pin_version = "10"')
        self.task("infra:rollback", "ENV=prod", "VERSION=9", clone=clone)
        words = ("ENV=prod", "VERSION=12", "REGION=eu-west-1")
        self.task("infra:rollback", *words, clone=clone, says="sluice-reconciler-prod in eu-west-1")
        self.assertEqual(self.live(), 12)
        self.assertTrue(all(call[call.index("--region") + 1] == "eu-west-1" for call in self.log))
        self.assertEqual(
            {call[0] for call in self.log}, {"aws"}, "without a state at hand, Terraform is not asked"
        )

    def test_what_cannot_be_rolled_back_is_said(self):
        refused = {
            (
                "VERSION=8",
            ): "has no version 8: `task infra:rollback ENV=prod REGION=eu-central-1` lists those",
            ("VERSION=11",): "live points to version 11 already",
        }
        for words, says in refused.items():
            self.task("infra:rollback", "ENV=prod", *words, fails=True, says=says)
        self.account(live=None)
        self.task("infra:rollback", "ENV=prod", fails=True, says="has no alias live in eu-central-1")

    def test_of_two_people_one_rolls_back(self):
        self.account(raced=True)
        self.task("infra:rollback", "ENV=prod", "VERSION=10", fails=True, says="PreconditionFailed")
        self.assertEqual(self.live(), 11)

    def test_a_prefix_is_read_from_any_variable_of_terraform(self):
        def named(says, clone=ROOT, **shell):
            self.task(
                "infra:rollback",
                "ENV=prod",
                clone=clone,
                fails=True,
                says=f"{says}-sluice-reconciler-prod (",
                **shell,
            )

        named("shell", TF_VAR_name_prefix="shell-")
        clone = self.clone_with()
        for file in ("terraform.tfvars", "acme.auto.tfvars"):
            (clone / "infra" / file).write_text(f'name_prefix = "{file[:4]}-"\n')
            named(file[:4], clone, TF_VAR_name_prefix="shell-")
        clone = self.clone_with(name_prefix='"last-"')
        named("last", clone)

    def test_the_state_names_the_function_if_it_is_at_hand(self):
        clone = self.clone_with(name_prefix='"another-"')
        (clone / "infra/.terraform/another-prod-eu-central-1").mkdir(parents=True)
        self.account(function="sluice-reconciler-prod")
        self.task("infra:rollback", "ENV=prod", "VERSION=9", clone=clone)
        self.assertEqual(self.live(), 9)
        # A state that cannot be read.
        self.account(function="")
        self.task(
            "infra:rollback",
            "ENV=prod",
            "VERSION=9",
            clone=clone,
            fails=True,
            says="another-sluice-reconciler-prod (",
        )


if __name__ == "__main__":
    unittest.main()
