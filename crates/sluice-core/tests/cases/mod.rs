//! How many random cases a property is asked.

use proptest::prelude::ProptestConfig;

/// `whole` of them if all cases are asked for, else a quarter.
pub(crate) fn cases(whole: u32) -> ProptestConfig {
    ProptestConfig { cases: sluice_test_extent::cases(whole, 4), ..ProptestConfig::default() }
}
