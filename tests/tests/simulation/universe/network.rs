//! The network of a run: what each request meets on its way, and what the ledger is shown of what the engine
//! did.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_testkit::{Answered, Call, Fault, Operation};

use super::{Spoilt, State, TABLE, Universe};
use crate::asking;
use crate::cost;
use crate::disturbances;
use crate::faults::{self, Drawn};
use crate::ice::Ice;
use crate::ledger::{Ledger, Touched};
use crate::machine::Machine;
use crate::process::Role;
use crate::row::Micros;
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::wire::{
    self, Change, is_give_back, is_write, keys_of, may_be_of_a_heal, name_of, update_of, verdict_of,
};

impl Universe {
    /// The fate of a request, or its latency.
    pub(super) fn meet(
        self: &Arc<Self>,
        (who, role): (&str, Role),
        call: Call<'_>,
        (ice, tally): (&Ice, &Tally),
    ) -> Option<Fault> {
        if role == Role::Customer {
            self.side_step();
        } else {
            self.step();
        }
        tally.sent(call.operation);
        let now = self.time();
        let mut state = self.locked();
        if self.is_quiet() {
            return None;
        }
        if is_give_back(call) {
            state.record.return_sent(who, &keys_of(call)[0], now);
        }
        if let Some(gate) = ice.gate() {
            *state.counts.entry("a request is held by a freeze").or_default() += 1;
            return Some(Fault::Hold(gate));
        }
        let lasting = state.disturbances.meets(call, self.scenario.conditions.broken_bodies);
        let drawn = match lasting.map_or_else(|| self.drawn(&mut state, call), Err) {
            Ok(latency) => return Some(latency),
            Err(drawn) => drawn,
        };
        tally.fault(now);
        let State { ledger, counts, journal, .. } = &mut *state;
        if drawn.name != faults::CONFLICT_BESIDE_CONDITION {
            *counts.entry(drawn.name).or_default() += 1;
        }
        let may_heal = role == Role::Process || who == cost::HEALS;
        if may_heal && (may_be_of_a_heal(call) || who.starts_with(asking::NAME)) {
            ledger.heal_disturbed(now);
        }
        if role == Role::Process && (drawn.in_doubt || is_give_back(call)) {
            doubt(ledger, who, call, &self.scenario);
        }
        journal.note(now, &format!("{who}: {} {}: {}", name_of(call), keys_of(call).join(" "), drawn.name));
        Some(drawn.fault)
    }

    /// What the weather has for a request: its latency, or a fault.
    fn drawn(self: &Arc<Self>, state: &mut State, call: Call<'_>) -> Result<Fault, Drawn> {
        let network = &mut state.network;
        match self.scenario.weather.one_fault_in() {
            // What is rare meets more of them, or a run would hardly see it.
            Some(many) if network.u32(0..if is_give_back(call) { 3 } else { many }) == 0 => {
                let told = Arc::downgrade(self);
                Err(faults::draw(network, call, move || {
                    if let Some(universe) = told.upgrade() {
                        universe.count(faults::CONFLICT_BESIDE_CONDITION);
                    }
                }))
            }
            _ => {
                let latency = self.scenario.conditions.latency;
                disturbances::latency(faults::latency(network), is_write(call), |usual| latency.takes(usual))
            }
        }
    }

    /// What the engine did.
    pub(super) fn see(&self, (who, role): (&str, Role), answered: Answered<'_>, machine: &Machine) {
        let call = answered.call;
        if !is_write(call) || call.operation == Operation::Other {
            return;
        }
        let keys = keys_of(call);
        let now = self.time();
        let mut state = self.locked();
        let State { ledger, record, journal, spoiled, counts, .. } = &mut *state;
        let what = if call.operation == Operation::UpdateItem { update_of(call) } else { String::new() };
        journal.note(
            now,
            &format!("{who}: {} {}{what} -> {}", name_of(call), keys.join(" "), verdict_of(answered)),
        );
        if is_give_back(call) {
            record.return_arrived(who, &keys[0], now);
        }
        if answered.status != 200 && what.contains("repaired_at = :anchor") {
            ledger.repair_failed(who, &keys[0], now);
        }
        if answered.status != 200 {
            if role == Role::Process && is_give_back(call) {
                // Refused: others booked behind it, or the bucket was full meanwhile.
                doubt(ledger, who, call, &self.scenario);
            }
            let lost = wire::unmarked(answered, |key| self.dynamo.row(TABLE, key).unwrap());
            drop(state);
            match lost {
                Ok(true) => self.count("a mark was lost to another"),
                Ok(false) => {}
                Err(violation) => self.violated(format!("{who}: {violation}")),
            }
            return;
        }
        let is_shown = call.operation != Operation::TransactWriteItems;
        let touched = |change| Touched { is_shown, ..self.touched(change, spoiled) };
        let rows = wire::changes(call).into_iter().map(touched).collect();
        let error = Micros::from(self.scenario.clock_error) + machine.behind(now);
        let judged = ledger.applied(role.writer(who), rows, now, error);
        if what.contains("if_not_exists(lots") {
            *counts.entry("a lot taken ahead").or_default() += 1;
        }
        for judgement in std::mem::take(&mut ledger.judgements) {
            *counts.entry(judgement).or_default() += 1;
        }
        for (name, bucket) in std::mem::take(&mut ledger.changed) {
            record.limit_changed(&name, &bucket, now);
        }
        for (name, lines) in ledger.changed_lines() {
            record.lines_changed(&name, &lines, now);
        }
        for (name, lines) in ledger.changed_slot_lines() {
            record.slot_lines_changed(&name, &lines, now);
        }
        for (name, amount) in std::mem::take(&mut ledger.given_back) {
            record.returned(&name, amount, now);
        }
        drop(state);
        if let Err(violation) = judged {
            self.violated(violation);
        }
    }

    /// A row as it would be if nobody had spoiled it.
    fn touched(&self, change: Change, spoiled: &mut BTreeMap<String, Spoilt>) -> Touched {
        let Change { key, purpose, reclaims, borrows_beyond } = change;
        let mut row = self.dynamo.row(TABLE, &key).unwrap();
        let mut was_spoiled = false;
        if let (Some(row), Some(spoilt)) = (&mut row, spoiled.get(&key)) {
            if row[spoilt.attribute] == spoilt.is {
                match &spoilt.was {
                    Some(was) => row[spoilt.attribute] = was.clone(),
                    None => drop(row.as_object_mut().map(|row| row.remove(spoilt.attribute))),
                }
            } else {
                was_spoiled = true;
                spoiled.remove(&key);
            }
        }
        Touched { key, row, purpose, reclaims, was_spoiled, is_shown: true, borrows_beyond }
    }
}

/// A take that its sender may repeat or never hear of, or a return that comes to nothing.
fn doubt(ledger: &mut Ledger, who: &str, call: Call<'_>, scenario: &Scenario) {
    for key in keys_of(call) {
        if let Some(bucket) = scenario.bucket(&key) {
            // As much as all callers of the process together may ask for in one write.
            let callers = Micros::try_from(scenario.callers_per_process).unwrap();
            ledger.account(who, &key).excused += Micros::from(bucket.most) * callers * 1_000_000;
        }
    }
}
