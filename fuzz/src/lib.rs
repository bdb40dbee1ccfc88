//! What the fuzz targets share: rows as text, and a second opinion on decimals.
//!
//! A target holds its parser to more than "it does not panic": what was parsed and is written again parses to
//! the same, what is rounded is rounded against the caller, and an error names what is wrong.

mod decimal;
mod row;

pub use decimal::{ceiling, floor, is_exactly, written_exponent_is_absurd};
pub use row::Item;
