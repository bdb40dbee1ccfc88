//! How much of the long tests runs. It depends on nothing, so that every crate may ask.

/// Whether `SLUICE_TESTS=whole` asks for every case, as every night.
#[must_use]
pub fn is_whole() -> bool {
    std::env::var_os("SLUICE_TESTS").is_some_and(|tests| tests == "whole")
}

/// So many cases as `SLUICE_TESTS` asks for: all of them, or one in `one_in`.
#[must_use]
pub fn cases(all: u32, one_in: u32) -> u32 {
    if is_whole() { all } else { all / one_in }
}
