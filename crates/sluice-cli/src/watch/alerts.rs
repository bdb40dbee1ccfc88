//! The lines around a page: the table's name, what is wrong with it, and what reading it costs.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::figure::{BAD, FAINT, SCARCE, STRONG};
use super::words::{clock, count, decimals};
use crate::duration::{relative, span, took};
use crate::view::{Cost, FaultView, Picture, RowKind, View};

/// The table's name, counts, and at the right edge the time of the picture.
pub(super) fn title(view: &View, width: u16, now: f64) -> Line<'static> {
    let name = Span::styled(format!(" {} ", view.table), STRONG);
    let Some(picture) = &view.picture else { return name.into() };
    let leases: usize =
        picture.buckets.iter().map(|bucket| bucket.leases).sum::<usize>() + picture.stray_leases;
    let mut counts = format!(" {}, {}", count(picture.buckets.len(), "bucket"), count(leases, "lease"));
    if picture.tickets > 0 {
        counts += &format!(", {}", count(picture.tickets, "ticket"));
    }
    let at = if view.trouble.is_some() { relative(picture.at - now) } else { clock(picture.at) };
    let (left, right) = (name.width() + counts.chars().count(), at.chars().count() + 1);
    let gap = usize::from(width).saturating_sub(left + right).max(1);
    Line::from_iter([name, Span::styled(counts, FAINT), " ".repeat(gap).into(), at.into()])
}

/// The worst problem of the table; if there is none, when it was last swept.
pub(super) fn alert(view: &View, width: u16, now: f64) -> Line<'static> {
    if let Some(trouble) = &view.trouble {
        let tries = usize::try_from(trouble.surveys).unwrap_or(usize::MAX);
        let since = span(now - trouble.since);
        let head = format!(" not read for {since} ({}): ", count(tries, "try"));
        let error = outage(&trouble.error, usize::from(width).saturating_sub(head.chars().count()));
        return Line::styled(head + &error, Style::new().fg(BAD));
    }
    let Some(picture) = &view.picture else { return Line::default() };
    match faults(picture) {
        text if text.is_empty() => swept(picture, now),
        text => Line::styled(format!(" {}", text.join("; ")), Style::new().fg(SCARCE)),
    }
}

/// An error of an outage. If it is too long, the advice at its end is cut first, then whole parts at its
/// beginning: the end says what is wrong, as in "connection refused". The part with the address stays.
fn outage(error: &str, room: usize) -> String {
    let is_too_long = |text: &str| text.chars().count() > room;
    if !error.starts_with("DynamoDB is unavailable") || !is_too_long(error) {
        return error.to_owned();
    }
    let mut reason = error.split("; ").next().unwrap_or(error);
    // While DynamoDB is out, the last failure is in brackets.
    if is_too_long(reason)
        && let Some((_, failure)) = reason.split_once(" does (")
    {
        reason = failure.strip_suffix(')').unwrap_or(failure);
    }
    let mut address = String::new();
    while is_too_long(&format!("{address}{reason}"))
        && let Some((part, after)) = reason.split_once(": ")
    {
        if part.contains("://") {
            address = format!("{part}: ");
        }
        reason = after;
    }
    address + reason
}

fn faults(picture: &Picture) -> Vec<String> {
    let mut text = Vec::new();
    if !picture.cost.is_whole {
        text.push(format!("a part of the table: {} were read", count(picture.cost.pages, "page")));
    }
    text.extend(unreadable(&picture.faults));
    if picture.stray_leases > 0 {
        text.push(format!("{} of buckets that are gone", count(picture.stray_leases, "lease")));
    }
    if let [key, rest @ ..] = &picture.unknown[..] {
        let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
        text.push(format!("not Sluice's: {key:?}{more}"));
    }
    text
}

/// Buckets come first: they are not in the list. If there are several, their names are worth more than why
/// the first cannot be read.
fn unreadable(faults: &[FaultView]) -> Option<String> {
    let buckets: Vec<&str> =
        faults.iter().filter(|fault| fault.row == RowKind::Bucket).map(|fault| fault.key.as_str()).collect();
    let [first, ..] = faults else { return None };
    let (names, named) = match &buckets[..] {
        [] | [_] => (format!("{} ({})", first.key, first.error), 1),
        several => (several.join(", "), several.len()),
    };
    let more =
        if faults.len() > named { format!(", and {} more", faults.len() - named) } else { String::new() };
    Some(format!("cannot be read: {names}{more}"))
}

fn swept(picture: &Picture, now: f64) -> Line<'static> {
    let text = match picture.sweeps.first() {
        None => String::new(),
        Some(sweep) => {
            let drift = if sweep.drift == 0.0 { String::new() } else { format!(", drift {}", sweep.drift) };
            let read = count(usize::try_from(sweep.rows).unwrap_or(usize::MAX), "row");
            format!(" swept {}: {read}, {} given back{drift}", relative(sweep.at - now), sweep.restored)
        }
    };
    Line::styled(text, FAINT)
}

/// What reading the table costs.
pub(super) fn cost(cost: &Cost) -> Line<'static> {
    let units = cost.read_units.map_or_else(|| "? read units".into(), |units| format!("{units} read units"));
    let text = format!(
        " {}, {units} in {}, every {}: {} units/s",
        count(cost.rows, "row"),
        took(cost.took_secs),
        span(cost.every_secs),
        decimals(cost.read_units_per_sec, 1),
    );
    Line::styled(text, FAINT)
}
