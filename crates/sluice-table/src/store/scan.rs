//! What a scan asks for, and a page of what it finds.

use std::borrow::Cow;

use sluice_core::Operand;

use super::written::Item;

/// A page of a scan.
#[derive(Debug)]
pub struct Page {
    /// The rows that passed the filter.
    pub rows: Vec<Item>,
    /// How many rows were read for it.
    pub scanned: usize,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Item>,
    /// What DynamoDB billed for it, where it says so.
    pub read_units: Option<f64>,
}

/// Whether a scan sees every write that was answered before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// It may miss the last second, at half the price.
    Eventual,
    /// It sees them all.
    Strong,
}

/// What a scan asks for.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Which part of the table, from 0.
    pub segment: i32,
    /// Into how many parts the table is divided.
    pub segments: i32,
    /// Empty for every row.
    pub filter: Cow<'static, str>,
    /// Which writes it sees.
    pub consistency: Consistency,
    /// The attributes that its expressions name, by their placeholders.
    pub names: &'static [(&'static str, &'static str)],
    /// The values that its filter names, by their placeholders.
    pub values: Vec<(Cow<'static, str>, Operand)>,
    /// The attributes that are returned; `None` for all.
    pub projection: Option<&'static str>,
    /// Most rows of a page; `None` for the megabyte that DynamoDB reads.
    pub page: Option<i32>,
    /// The row after which it begins; `None` for the first.
    pub from: Option<Item>,
}
