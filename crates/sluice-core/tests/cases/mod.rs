//! How many random cases a property is asked.

use proptest::prelude::ProptestConfig;

/// A quarter of `whole`, or all of them where `SLUICE_TESTS=whole` asks for them, as CI does.
pub(crate) fn cases(whole: u32) -> ProptestConfig {
    let part = if std::env::var_os("SLUICE_TESTS").is_some_and(|tests| tests == "whole") { 1 } else { 4 };
    ProptestConfig { cases: whole / part, ..ProptestConfig::default() }
}
