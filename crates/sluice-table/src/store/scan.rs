//! The parameters of a scan, and a page of its results.

use std::borrow::Cow;

use sluice_core::{AttributeNames, Operand};

use super::written::Item;

/// A page of a scan.
#[derive(Debug)]
pub struct Page {
    /// The rows that passed the filter.
    pub rows: Vec<Item>,
    /// How many rows DynamoDB read for the page.
    pub scanned: usize,
    /// The start of the next page; `None` after the last page.
    pub next: Option<Item>,
    /// The read units that DynamoDB billed for the page, if the reply states them.
    pub read_units: Option<f64>,
}

/// Whether a scan sees every write that was answered before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The scan may miss writes of the last second; it costs half.
    Eventual,
    /// The scan sees every such write.
    Strong,
}

/// The parameters of a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The segment to scan, from 0.
    pub segment: i32,
    /// The number of segments that the table is divided into.
    pub segments: i32,
    /// The filter expression; empty for every row.
    pub filter: Cow<'static, str>,
    /// Which writes the scan sees.
    pub consistency: Consistency,
    /// The attributes in the expressions.
    pub names: AttributeNames,
    /// The values in the filter, by placeholder.
    pub values: Vec<(Cow<'static, str>, Operand)>,
    /// The attributes to return; `None` for all.
    pub projection: Option<&'static str>,
    /// The most rows of a page; `None` for the megabyte that DynamoDB reads.
    pub page: Option<i32>,
    /// The row after which the scan begins; `None` for the first.
    pub from: Option<Item>,
}
