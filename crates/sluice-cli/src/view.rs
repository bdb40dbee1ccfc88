//! The picture of a table, which `sluice watch`, `sluice dashboard` and `sluice metrics` show.
//!
//! A [`SurveyReader`] surveys the table at a pace that costs little; a [`View`] collects what the reader
//! read. This module knows no terminal and no web page. Amounts are floats here: nothing is decided from a
//! picture.

mod bucket;
mod history;
mod number;
mod picture;
mod reader;
#[cfg(test)]
pub(crate) mod sample;
mod share;
#[cfg(test)]
mod tests;
mod used;

pub(crate) use bucket::{BucketView, Holder, LoadView, MOST_HOLDERS, OVERDUE, has_ended, is_overdue};
#[cfg(test)]
pub(crate) use history::PointUse;
pub(crate) use history::{Point, Series, Total};
pub(crate) use number::seconds;
pub(crate) use picture::{Cost, FaultView, Picture, RowKind, View};
pub(crate) use reader::{MOST_PAGES, SurveyReader, SurveyReading, interval};
pub(crate) use share::{ShareOfSlots, ShareView};
