//! How much of the table healing scans may read.

use std::time::Duration;

use sluice_core::{HEAL_EVERY, LONGEST_HEAL_SPACING};
use sluice_ops::MOST_UNITS;

/// Read units a minute that the healing scans of the table may use; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HealBudget(u32);

impl HealBudget {
    /// 25 units a second: a table of 1.6 MB is read every 8 s.
    pub(crate) const DEFAULT: Self = Self(1_500);

    /// The smallest budget: a page of a megabyte (128 units) within the longest time between two turns.
    pub(crate) const LEAST: u32 = 10;

    /// The largest budget: 16,666 units a second, five times what one partition of the table serves.
    pub(crate) const MOST: u32 = 1_000_000;

    /// The nearest valid budget; 0 is none.
    pub(crate) fn of(units_per_minute: u32) -> Self {
        Self(if units_per_minute == 0 { 0 } else { units_per_minute.clamp(Self::LEAST, Self::MOST) })
    }

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The units that a turn may spend before it ends: what the budget yields until the next turn may begin
    /// at the soonest.
    pub(crate) fn allowance(self) -> u64 {
        u64::from(self.0) * HEAL_EVERY.as_secs() / 60
    }

    /// The most that a turn may spend: what the budget yields within the longest time between two turns.
    pub(crate) fn most(self) -> u64 {
        u64::from(self.0) * LONGEST_HEAL_SPACING.as_secs() / 60
    }

    /// How long after the mark of a turn that has spent `units` the next turn may begin.
    pub(crate) fn spacing(self, units: u64) -> Duration {
        self.lasts(units).clamp(HEAL_EVERY, LONGEST_HEAL_SPACING)
    }

    /// As `spacing`, with one more page paid for: the process may end, or the page be lost, before anybody
    /// has recorded what the page cost.
    pub(crate) fn spacing_with_page(self, units: u64) -> Duration {
        self.spacing(units.saturating_add(MOST_UNITS))
    }

    /// How long `units` have to last, from the mark of the turn that spent them.
    fn lasts(self, units: u64) -> Duration {
        Duration::from_millis(units.saturating_mul(60_000) / u64::from(self.0.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_budget_pays_for_a_page_within_the_longest_spacing() {
        let least = HealBudget::of(1);
        // The turn ends with the page that exceeds the allowance.
        assert!(least.lasts(least.allowance() + 129) < LONGEST_HEAL_SPACING);
        assert_eq!(HealBudget::DEFAULT.lasts(HealBudget::DEFAULT.allowance()), HEAL_EVERY);
        assert_eq!(least.lasts(least.most()), LONGEST_HEAL_SPACING);
        // A small table costs no additional write.
        assert_eq!(HealBudget::DEFAULT.spacing_with_page(0), HEAL_EVERY);
        assert!(HealBudget::of(0).is_none());
    }
}
