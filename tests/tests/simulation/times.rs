//! Time: whoever was just granted by the table knows the time, to within what `docs/semantics.md` promises
//! (*Clocks*), whatever its machine shows.
//!
//! Excused is a process whose machine stood, or whose clock was set, between its asking and its answer: what
//! it wrote by may be older. So is one whose call may have been paid by a lot from before that: no request
//! told it the time since.

use sluice_core::USE_BY;

use crate::process::Process;
use crate::row::Micros;
use crate::universe::Universe;

/// What must have been judged in a run of many seeds.
pub(crate) const JUDGED: &str = "judged: the time of a process";

/// Judges the time of a process that asked at `asked_at`, and has just been granted by the table.
pub(crate) fn judge(universe: &Universe, process: &Process, asked_at: Micros) {
    let lot_before = asked_at - Micros::try_from(USE_BY.as_micros()).unwrap_or(0);
    if process.machine.changed_since(lot_before) || process.ice.was_frozen_since(asked_at) {
        return;
    }
    let (now, error) = (universe.time(), Micros::from(universe.scenario.clock_error));
    let off = Micros::from(process.client.now().micros()) - now;
    universe.count(JUDGED);
    if off.abs() > error {
        let (name, offset) = (&process.name, process.client.clock_offset());
        universe.violated(format!("{name} goes by a time that is off by {off} us, and knows of {offset:?}"));
    }
}
