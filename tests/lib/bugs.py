"""Bugs to plant: where each stands in the source, and how it is put there for the time of a build."""

import contextlib
import pathlib
import signal

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CORE = "crates/sluice-core/src/"
SDK = "crates/sluice-sdk/src/"
TABLE = "crates/sluice-table/src/"
OPS = "crates/sluice-ops/src/"

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

# Name, file, what stands there, what is planted; the last three again where one promise is guarded twice. A
# condition is made true, not taken away: DynamoDB refuses values that no expression uses.
#
# Three more are too rare for 300 seeds, two since their interleavings take a few milliseconds: a reclaim
# without `#ttl = :read_ends` (a renewal between scan and reclaim) and a change of limits without its anchor
# (a re-anchor between its reading and its write). tests/tests/integration/either/interleavings.rs and
# limits.rs hold those open, and the model finds the first. So is a settle that does not ask what others
# returned (`#returned <= :most_returned`): what it gives back too much is less than the times of requests
# hide, which histories count as an error of clocks. crates/sluice-core/tests/window_bound/settles.rs has
# those times exact. And so is a settle that was dropped, and is said again (`counted.minus(surplus)`):
# tests/tests/integration/settle.rs holds it. And a lot without its cap at the brim: 100 seeds did not find
# it. It gives too much by a second's refill at most, of which histories take off the errors of clocks and the
# times of requests. crates/sluice-core/tests/window_bound/batch.rs has neither, and finds it. And, of marks:
# a lost one that is not tried again in time (`left.max(MOMENT)`, twice the spacing), which takes the death of
# the process that made the other, and one that comes to nothing where a count is none (`OR
# attribute_exists(#refused)`), since rows that are spoiled are not judged for recovery.
# tests/tests/integration/healing/waits.rs holds the former, healing.rs the latter. And a line that slopes
# before its anchor: 300 seeds did not find it. Where time is DynamoDB's, no clock of the simulation is ahead
# of others by more than its bucket takes to fill. crates/sluice-core/tests/window_bound/clocks.rs has clocks
# that are, and finds it. And a return of tokens without its anchor (`#last_refill_at = :read_anchor`): the
# request has to be on its way until the bucket is full and taken from again, and such times count as an error
# of clocks. crates/sluice-core/tests/window_bound/returns.rs has all three of its conditions. And a large
# booked call that is written behind others (`is_closed_to`): one seed of some thousands finds it.
# crates/sluice-core/tests/window_bound/batch.rs has the case itself. And a correction whose note another
# sweep took away (`#drift = :read_drift`): two sweepers have to agree within milliseconds. The model of the
# recount finds it (tests/model/src/recount/mistake.rs, `NoteUnheeded`). So rare are a lease row that is found
# and believed to cost what it says (`that_took`), which needs a take that went unheard and a number that
# someone wrote into its row before its holder looks, and a reply that is believed though the machine's clocks
# moved apart during it (`was_doubted`). tests/tests/integration/wrong_costs.rs and
# crates/sluice-table/src/table_clock/tests.rs hold them.
BUGS = [
    ("spend without its upper bound", CORE + "plan/rate.rs",
     'AND #tokens >= :lowest AND #tokens <= :brim \\\n',
     'AND #tokens >= :lowest AND (#tokens <= :brim OR #tokens > :brim) \\\n'),
    ("spend without its lower bound", CORE + "plan/rate.rs",
     'AND #tokens >= :lowest AND', 'AND (#tokens >= :lowest OR #tokens < :lowest) AND'),
    ("spend of twice the cost", CORE + "plan/rate.rs",
     'values.push((":cost", Operand::number(total)));',
     'values.push((":cost", Operand::number(total.plus(total))));'),
    ("full write without the anchor", CORE + "plan/rate.rs",
     '"#last_refill_at = :read_anchor AND #tokens > :brim',
     '"(#last_refill_at = :read_anchor OR #last_refill_at <> :read_anchor) AND #tokens > :brim'),
    ("full write that moves the anchor back", CORE + "plan/rate.rs",
     "let at = self.bucket.line().effect(now);", "let at = now;"),
    ("tokens given back from under a later booking", CORE + "plan/receipt.rs",
     "AND #tokens = :left", "AND (#tokens = :left OR #tokens <> :left)"),
    ("tokens given back again after a lost reply", SDK + "lane/release.rs",
     "inner.patient.update(&update, Resend::UnlessAmbiguous)", "inner.patient.update(&update, Resend::Always)"),
    ("a booked start that is now", CORE + "plan/receipt.rs",
     "there.map_or(granted_at, |there| there.max(granted_at))",
     "there.map_or(granted_at, |_| granted_at)"),
    ("a cancelled booking that is not given back", SDK + "grant.rs",
     "        if let Some(grant) = self.0.take() {\n            grant.give_back_unused();\n        }",
     "        std::mem::forget(self.0.take());"),
    ("an answer that nobody took is not given back", SDK + "lane/unclaimed.rs",
     "spawn_give_back(&inner, rest.into_parts(), Use::Unused, |_| ());",
     "std::mem::forget(rest.into_parts());"),
    ("what was granted beside a refusal is kept", SDK + "lane/per_bucket.rs",
     "let _ =\n            timeout(kept, tokio::spawn(boxed(async move { give_back_unused(&inner, parts).await }))).await;",
     "drop((inner, parts, kept, give_back_unused));"),
    ("a batch whose callers all start with the last", SDK + "lane/tokens/replies.rs",
     "let receipt =\n                RateReceipt::in_batch(Arc::clone(&after), sent.total.minus(sum_to_caller), waiter.ask.cost);",
     "let _ = sum_to_caller;\n            let receipt = RateReceipt::in_batch(Arc::clone(&after), sent.total, waiter.ask.cost);"),
    ("a batch of which nobody is written for but the first", SDK + "lane/tokens.rs",
     "let (total, prefetched, began) = (batch.total, batch.prefetched, Instant::now());",
     "let (total, prefetched, began) = (batch.total, batch.prefetched, Instant::now());\n"
     "        let alone = planner.plan_batch(&claims[..1], now, Starts::InReply, Amount::ZERO).write;\n"
     "        let batch = sluice_core::BatchPlan { write: batch.write.and(alone), ..batch };"),
    ("a lot that is given back and used all the same", SDK + "lane/prefetch.rs",
     "shelf.lots = kept;\n        Vec::from(over)", "shelf.lots = kept;\n        shelf.lots.extend(over.iter().cloned());\n        Vec::from(over)",
     CORE + "prefetch.rs", "if !self.is_fresh(now) || self.after", "if self.after"),
    ("acquire without T >= k", CORE + "plan/slots.rs",
     'AND #tokens >= :cost', 'AND (#tokens >= :cost OR #tokens < :cost)'),
    ("inline take without T >= need", CORE + "plan/inline/write.rs",
     '" AND #tokens >= :need"', '" AND (#tokens >= :need OR #tokens < :need)"'),
    ("inline release of a lease that is gone", CORE + "plan/inline/write.rs",
     '&[" AND attribute_exists(#leases.", id, ")"]',
     '&[" AND (attribute_exists(#leases.", id, ") OR attribute_not_exists(#leases.", id, "))"]'),
    ("inline take under an id that is there", CORE + "plan/inline/write.rs",
     '&[" AND attribute_not_exists(#leases.", id, ")"]',
     '&[" AND (attribute_not_exists(#leases.", id, ") OR attribute_exists(#leases.", id, "))"]'),
    ("lease put without attribute_not_exists", CORE + "lease.rs",
     'static WRITE: Statement = Statement::guard("attribute_not_exists(#key)"',
     'static WRITE: Statement = Statement::guard("attribute_not_exists(#key) OR attribute_exists(#key)"'),
    ("release without the delete's condition", CORE + "lease.rs",
     '"attribute_exists(#key)"', '"attribute_exists(#key) OR attribute_not_exists(#key)"'),
    ("reclaim of a lease that is gone", CORE + "lease.rs",
     '"#ttl = :read_ends"', '"#ttl = :read_ends OR attribute_not_exists(#ttl)"'),
    ("a sweep without the margin for clocks", OPS + "sweep/pipeline.rs",
     "read_at.begun.before(CLOCK_ERROR)", "read_at.begun.before(CLOCK_ERROR * 0)"),
    ("a conflict read as already at capacity", CORE + "reclaim.rs",
     "        ChunkStep::BackOff(self.split())\n    }\n",
     "        let chunk = Self { part: BucketPart::None, ..self };\n        ChunkStep::Continue { chunks: alloc::vec![chunk], lost_races: 0 }\n    }\n"),
    ("the rest of a ticket that is not taken", SDK + "call/ticket/redeem.rs",
     "    if asks.is_empty() {", "    if asks.len() < usize::MAX {"),
    ("renewal that brings a lease back", CORE + "plan/slots.rs",
     '"#ttl <= :ends"', '"#ttl <= :ends OR attribute_not_exists(#ttl)"'),
    ("renewal that shortens a lease", CORE + "plan/slots.rs",
     '"#ttl <= :ends"', '"attribute_exists(#ttl) OR #ttl <= :ends"'),
    ("resize without its capacity", CORE + "plan/change.rs",
     '"#limit_type = :concurrent AND #capacity = :read_capacity",',
     '"#limit_type = :concurrent AND (#capacity = :read_capacity OR #capacity <> :read_capacity)",'),
    ("the TTL of DynamoDB on ttl", TABLE + "create.rs",
     "attribute_name(PURGE_AT).enabled", 'attribute_name("ttl").enabled'),
    ("settle of a call that is settled", SDK + "lane/settle.rs", "(*counts, *kept) = (counted.minus(change),", "(*counts, *kept) = (counted,"),
    ("settle again after a lost reply", SDK + "lane/settle.rs",
     "inner.patient.update(&update, Resend::UnlessAmbiguous)", "inner.patient.update(&update, Resend::Always)"),
    ("cool-down that is cut short", CORE + "plan/cool_down.rs", "OR #blocked_until < :blocked_until)",
     "OR #blocked_until < :blocked_until OR #blocked_until > :blocked_until)"),
    ("spend in a cool-down", CORE + "plan/rate.rs",
     '#tokens <= :brim \\\n     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now)',
     '#tokens <= :brim \\\n     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now OR #blocked_until > :now)'),
    ("slot taken in a cool-down", CORE + "plan/slots.rs",
     '#tokens >= :cost \\\n     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now)',
     '#tokens >= :cost \\\n     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now OR #blocked_until > :now)'),
    ("reply that raises a level", CORE + "plan/observe.rs",
     "if excess < remaining.receipt.cost().amount().max(bucket.limit().cost_per_call().amount()) {",
     "if excess == crate::amount::Amount::ZERO {"),
    ("reply that counts what others lowered again", CORE + "plan/observe.rs",
     "remaining.excess().minus(bucket.observed().minus(before.observed()))", "remaining.excess()"),
    ("reply that counts later grants twice", CORE + "plan/observe.rs",
     "remaining.excess().minus(bucket.observed().minus(before.observed()))",
     "remaining.excess().minus(bucket.observed().minus(before.observed())).plus(before.tokens().minus(bucket.tokens()))"),
    ("reply of another line", CORE + "plan/observe.rs", " && bucket.anchor() == before.anchor();", ";"),
    ("reply that is older than the last", CORE + "plan/observe.rs",
     "is_older_row || bucket.observed_version().is_some_and(|last| last > version)", "is_older_row",
     SDK + "vendor/observe.rs", "remaining.is_older_than(newest)", "remaining.is_older_than(newest) && false"),
    ("reply to a call of a transaction", SDK + "lane/rows/batch/replies.rs", "RateReceipt::foreseen(", "RateReceipt::in_batch("),
    ("ticket redeemed twice", CORE + "ticket/row.rs",
     '"attribute_exists(#key) AND attribute_not_exists(#redeemed_by)"',
     '"attribute_exists(#key) AND (attribute_not_exists(#redeemed_by) OR attribute_exists(#redeemed_by))"'),
    ("ticket that is honoured late", CORE + "ticket/booked.rs",
     "(receipt.room(now).minus(since) >= self.cost.amount()).then_some(receipt)", "Some((receipt, since).0)",
     SDK + "call/ticket/redeem.rs", "if ticket.use_by() < now {", "if ticket.use_by() < now && false {"),
    ("ticket that starts before its tokens are there", CORE + "ticket/booked.rs",
     "self.reaches(Amount::ZERO)", "self.reaches(Amount::ZERO.minus(self.cost.amount()))"),
    ("stale grant that its tracker forgets", SDK + "call/tracker/stale.rs", "match grant.release().await {",
     "std::mem::forget(grant);\n"
     "    let forgotten: Result<_, crate::lane::release::ReleaseError> = Ok(Released::GivenBack);\n"
     "    match forgotten {"),
    ("stream that gives back more than it took", SDK + "call/held.rs",
     "grant.charge(&dimension, amount)", "grant.charge(&dimension, sluice_core::Amount::ZERO.minus(amount))"),
    ("mark without its condition", CORE + "heal.rs",
     "#healed_at <= :before)", "#healed_at <= :before OR #healed_at > :before)",
     CORE + "heal.rs", "#heal_after > :never", "#heal_after > :never OR #heal_after <= :never"),
    ("a heal without the margin for clocks", OPS + "sweep/heal.rs",
     "let cutoff = now.before(CLOCK_ERROR);", "let cutoff = now;",
     OPS + "sweep/heal.rs", "deadlines, cutoff: now.before(CLOCK_ERROR) }", "deadlines, cutoff: now }",
     OPS + "sweep/scan.rs", "            cutoff: now.before(CLOCK_ERROR),", "            cutoff: now,"),
    ("measurement without its sequence", CORE + "load/measure.rs",
     '"#sequence = :read_sequence"', '"#sequence = :read_sequence OR #sequence <> :read_sequence"'),
    ("measurement of what is taken, not of leases", OPS + "sweep/measure.rs",
     "pending: living.fold(census.live(), |sum, cost| sum.plus(cost)),",
     "pending: living.fold(census.live(), |sum, cost| sum.plus(cost)).max(capacity.minus(bucket.tokens())),"),
    ("drain rate that is sampled while nothing is pending", CORE + "load/measure.rs",
     "departed.filter(|_| before || now)", "departed",
     CORE + "load/measure.rs", "if found > rate || (before && now)", "if found > rate || before == now"),
    ("admission that counts from the last completion alone", CORE + "admission.rs",
     "completion.max(since)", "completion"),
    ("refusal that is remembered for a minute", SDK + "bucket/known.rs",
     "const RATE_MEMORY: Duration = Duration::from_secs(1);", "const RATE_MEMORY: Duration = Duration::from_secs(60);"),
    ("waiters that look every 20 s", TABLE + "retry.rs",
     "POLL: Self = Self { base: Duration::from_millis(25), cap: Duration::from_millis(100) };",
     "POLL: Self = Self { base: Duration::from_secs(20), cap: Duration::from_secs(20) };",
     SDK + "lane/poll.rs", "LONGEST_STRETCHED: Duration = Duration::from_secs(4);", "LONGEST_STRETCHED: Duration = Duration::from_secs(20);"),
    ("attempt without its timeout", TABLE + "store/exchange.rs",
     "let until = self.sent_at + self.allowed;", "let until = self.sent_at + self.allowed * 3_600;"),
    ("read that is sent twice", TABLE + "store/read.rs",
     "let reply = self.answer_with_retries(Operation::GetItem, Resend::Always, request).await;",
     "let _ = self.answer_with_retries(Operation::GetItem, Resend::Always, request).await;\n"
     "        let reply = self.answer_with_retries(Operation::GetItem, Resend::Always, request).await;"),
    ("clock that is not corrected", TABLE + "table_clock.rs",
     "Timestamp::from_micros(local.micros().max(lowest).min(highest))",
     "let _ = (lowest, highest);\n        Timestamp::from_micros(local.micros())"),
    # Any one of the three notices it.
    ("machine that does not notice that it stood still", TABLE + "table_clock.rs",
     "abs_diff(local_minus_steady) <= whole_micros(JUMP);", "abs_diff(local_minus_steady) < u64::MAX;",
     TABLE + "table_clock.rs", "local_minus_steady.abs_diff(before) > whole_micros(JUMP)", "local_minus_steady.abs_diff(before) == u64::MAX",
     CORE + "clock_offset.rs",
     "        if together.is_none() {\n            self.old = None;\n        }\n"
     "        self.young = Some(together.map_or((now, reply), |young| (since, young)));",
     "        if let Some(young) = together {\n            self.young = Some((since, young));\n        }"),
    ("refusal that tells less than its wait", CORE + "plan/claim.rs",
     "return Plan::Refuse(Refusal { wait, reason: Reason::Exhausted });",
     "return Plan::Refuse(Refusal { wait: wait / 2, reason: Reason::Exhausted });"),
    ("waiter that is dropped by throttling", SDK + "lane/setback.rs",
     "Self::Refused(retry) | Self::Throttled(retry) => patience.waits_for(retry),",
     "Self::Refused(retry) => patience.waits_for(retry),\n            Self::Throttled(_) => false,"),
    ("slot take that does not check the limit type", CORE + "plan/slots.rs",
     '"#limit_type = :concurrent AND #tokens >= :cost',
     '"(#limit_type = :concurrent OR #limit_type <> :concurrent) AND #tokens >= :cost'),
    ("inline lease whose room ignores what others hold", CORE + "plan/inline/draft.rs",
     "others.fold(capacity, |room, (_, lease)| room.minus(lease.cost.amount()))",
     "others.fold(capacity, |room, _| room)"),
    ("heal that scans each time", SDK + "heal.rs",
     "Self::Table(_) => HEAL_EVERY,",
     "Self::Table(_) => Duration::from_millis(100),",
     SDK + "heal/turn.rs", "if read(&row).may_be_made_at(now) > now {", "if read(&row).may_be_made_at(now) > now && false {",
     SDK + "heal/turn.rs", "if !read(&row).is_of(&id, now) {", "if !read(&row).is_of(&id, now) && false {",
     SDK + "heal/turn.rs", "healing(inner).table.tried(self.at, spacing);", "healing(inner).table.tried(self.at, MOMENT);"),
    ("admission that sheds who has no SLO", CORE + "admission.rs",
     "let Some(slo) = pressure.slo else { return AdmissionDecision::Admit { wait } };",
     "let slo = pressure.slo.unwrap_or_default();"),
    ("a bucket that is unknown for a minute", SDK + "bucket/presence.rs",
     "UNKNOWN_MEMORY: Duration = Duration::from_secs(1);", "UNKNOWN_MEMORY: Duration = Duration::from_secs(60);"),
    ("an anchor of the future that nobody repairs", CORE + "plan/future_anchor.rs",
     "self.is_to_repair(now) && self.may_repair_at(now) <= now", "self.is_to_repair(now) && self.may_repair_at(now) <= now && false"),
    ("an inline release of what its row says", CORE + "plan/inline/draft.rs",
     "back: release.cost.amount() }", "back: lease.cost.amount() }"),
    # Of shares. The ledger of the simulation (ledger/shares.rs) finds each within the first 40 seeds. These
    # tests find them too: tests/tests/integration/shares.rs, crates/sluice-core/tests/window_bound/shares.rs,
    # and the tests of limit/split.rs.
    ("a borrower that leaves no floor", CORE + "plan/rate.rs", "Taker::Borrower(lender) => lender.floor(),",
     "Taker::Borrower(lender) => lender.floor().minus(lender.floor()),"),
    ("a loan that is booked ahead", SDK + "lane/tokens/shares.rs",
     "let batch = planner.plan_batch(&at_once, now, Starts::InReply, Amount::ZERO);\n        let lender",
     "let batch = planner.plan_batch(claims, now, Starts::InReply, Amount::ZERO);\n        let lender",
     CORE + "plan/rate.rs", "Taker::Borrower(lender) => lender.floor(),", "Taker::Borrower(lender) => lender.floor().minus(lender.floor()),"),
    ("a loan that its borrower does not count", CORE + "statement.rs",
     '", :0) + :lent"].concat()', '", :0) + :0"].concat()'),
    ("a borrowed grant that goes back to the common line", CORE + "plan/receipt.rs",
     "        let planner = RatePlanner::new(&self.after);\n        let (statement, most)",
     "        let common = Bucket::clone(&self.after).seen_from(None);\n"
     "        let planner = RatePlanner::new(&common);\n        let (statement, most)"),
    ("shares that are rewritten over what was taken since", CORE + "plan/lines/rewrite.rs",
     '"#version = :read_version AND #last_refill_at = :read_anchor"',
     '"(#version = :read_version OR #version <> :read_version) AND #last_refill_at = :read_anchor"'),
    ("a declared share whose level comes from nowhere", CORE + "plan/split.rs",
     "level: pool.minus(given).min(to.common().capacity())", "level: pool.plus(given).minus(given).min(to.common().capacity())"),
    ("a removed share whose level is lost", CORE + "plan/split.rs",
     "removed.iter().map(|share| level(&share.line)).fold(bucket.level(at), Amount::plus);",
     "removed.iter().take(0).map(|share| level(&share.line)).fold(bucket.level(at), Amount::plus);"),
    ("a changed share that is full again", CORE + "plan/split.rs",
     "share.line.level(anchor).min(wanted.limit.capacity());",
     "share.line.level(anchor).max(wanted.limit.capacity());"),
    ("a rewrite that leaves anchors where they are", CORE + "plan/lines/rewrite.rs",
     "at.max(anchor.after(Duration::from_micros(1)))", "at.min(now).max(anchor)"),
    ("a penalty that each line pays whole", CORE + "plan/lines/lowered.rs",
     "level(line).scaled(amount, sum));", "level(line).scaled(amount, sum).max(amount.min(level(line))));"),
    ("a background share that borrows as others do", CORE + "bucket/lines.rs",
     "(true, _) => floor.plus(call),", "(true, _) => floor,"),
    ("a borrowed grant of a share that the process takes for unknown", SDK + "lane/tokens/shares.rs",
     "self.inner.line_of(&self.entry.dimension", "self.inner.entry_of(&self.entry.dimension"),
    ("a lower limit whose lines add up to more", CORE + "limit/split.rs",
     "            rate = rate.minus(own_rate);\n", ""),
    # Of shares of slots: ledger/slot_rows.rs. crates/sluice-core/tests/inline/slot_rows has each of the
    # conditions.
    ("a borrower of slots that asks for a free one alone", CORE + "plan/slots.rs",
     '"#limit_type = :concurrent AND #tokens >= :least \\\n', '"#limit_type = :concurrent AND (#tokens >= :least OR #tokens >= :cost) \\\n'),
    ("a borrower of slots that passes those who wait", CORE + "bucket.rs",
     "self.waited_until.is_some_and(|until| until > now && until <= now.after(FARTHEST_MARK))",
     "self.waited_until.is_some_and(|until| until > now && until <= now)",
     CORE + "plan/slots.rs",
     'AND (attribute_not_exists(#waited_until) OR #waited_until <= :now OR #waited_until > :far)",\n    &[TOKENS',
     'AND (attribute_not_exists(#waited_until) OR #waited_until <= :now OR #waited_until > :now OR #waited_until > :far)",\n    &[TOKENS'),
    ("a borrower of slots that leaves none", CORE + "plan/inline/draft.rs",
     "take.cost.amount().plus(take.leaves())", "take.cost.amount()"),
    ("a limit of slots that is changed beside shares declared since", CORE + "plan/change.rs",
     " AND attribute_not_exists(#shares) \\\n     AND attribute_not_exists(#changes_to)\",",
     " AND (attribute_not_exists(#shares) OR #capacity > :0) \\\n     AND (attribute_not_exists(#changes_to) OR #capacity > :0)\","),
    ("slots that come back while shares change are counted twice", CORE + "plan/slot_rows.rs",
     "self.capacity().max(held)", "self.capacity()"),
]


def plant(places):
    """What the files are with the bug in them, and what they were; or the file whose place is not there."""
    sources, planted = {}, {}
    for file, before, after in zip(places[0::3], places[1::3], places[2::3]):
        path = ROOT / file
        source = planted.get(path) or sources.setdefault(path, path.read_text())
        if source.count(before) != 1:
            return None, f"{file}, {before.splitlines()[0].strip()!r}, is there {source.count(before)} times"
        planted[path] = source.replace(before, after, 1)
    return planted, sources


@contextlib.contextmanager
def in_place(planted, sources):
    """The bug is in the sources meanwhile, whatever happens."""
    try:
        for path, source in planted.items():
            path.write_text(source)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for path, source in sources.items():
            path.write_text(source)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
