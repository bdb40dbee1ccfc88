"""What vendors and products do: calls that hang, callers that ask at once again, nonsense."""

import time

from day import day, expect, of_runbook
from days.game_day import BUCKET, LIMITS, Seen
from days.slots import nothing_moves
from judged import HOUR
from lab import Lab, lease, slots


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
