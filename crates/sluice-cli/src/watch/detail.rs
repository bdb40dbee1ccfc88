//! The page of one bucket: level, use, limits, load, and holders.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::figure::{self, BAD, FAINT, SCARCE, STRONG, USE};
use super::lines::lines;
use super::list::{remarks, used};
use super::words::{amount, count, cut, id, rate};
use crate::duration::{exact_wait, relative, span};
use crate::view::{BucketView, Holder, LoadView, MOST_HOLDERS, Picture, ShareOfSlots, ShareView, View};

/// The time span of the chart: as much as is known, within these bounds.
const CHART_SECS: std::ops::RangeInclusive<f64> = 60.0..=300.0;
const CHART_ROWS: u16 = 4;

pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    view: &View,
    picture: &Picture,
    name: &str,
    scrolled: usize,
    now: f64,
) {
    let Some(bucket) = picture.buckets.iter().find(|bucket| bucket.name == name) else {
        let fault =
            picture.faults.iter().find(|fault| fault.key == name).map(|fault| format!(": {}", fault.error));
        let gone = format!(
            " {name}: the table has no such bucket, or it cannot be read{}",
            fault.unwrap_or_default()
        );
        lines(buffer, area, [Line::styled(gone, Style::new().fg(BAD))]);
        return;
    };
    let facts = facts(bucket, now);
    // On a low screen the chart shrinks, so that there is room for holders.
    let chart_rows = CHART_ROWS.min(area.height.saturating_sub(12).max(1));
    let rows = [
        Constraint::Length(5),
        Constraint::Length(chart_rows + 2),
        Constraint::Length(rows(&facts)),
        Constraint::Min(0),
    ];
    let [level, chart, about, holders] = Layout::vertical(rows).areas(area);
    lines(buffer, level, top(bucket, usize::from(area.width), now));
    draw_chart(buffer, chart, view, bucket, picture.at);
    lines(buffer, about, facts);
    draw_holders(buffer, holders, bucket, scrolled, now);
}

fn rows(facts: &[Line<'_>]) -> u16 {
    u16::try_from(facts.len()).unwrap_or(u16::MAX)
}

/// The bucket's name and limits, and the level as a bar of two rows.
fn top(bucket: &BucketView, width: usize, now: f64) -> Vec<Line<'static>> {
    let mut first =
        vec![Span::styled(format!(" {}  ", bucket.name), STRONG), Span::styled(limits(bucket), FAINT)];
    for (text, style) in remarks(bucket, now) {
        first.push("  ".into());
        first.push(Span::styled(text, style));
    }
    let bar = || {
        let mut spans = vec![Span::raw(" ")];
        spans.extend(figure::gauge(bucket, width.saturating_sub(2)));
        Line::from(spans)
    };
    vec![first.into(), Line::default(), bar(), bar(), standing(bucket)]
}

fn limits(bucket: &BucketView) -> String {
    let BucketView { capacity, refill_rate, cost_per_call, kind, .. } = bucket;
    let cost = amount(*cost_per_call);
    if bucket.is_concurrent() {
        let whole: f64 = bucket.shares.iter().map(|share| share.capacity).sum();
        let of_them = format!("{} at once, {} of them in no share", amount(whole), amount(*capacity));
        let at_once =
            if bucket.shares.is_empty() { format!("{} at once", amount(*capacity)) } else { of_them };
        return format!("{at_once}, {cost} a call");
    }
    let (capacity, refilled) = (amount(*capacity), rate(*refill_rate));
    if *kind == "tokens" && cost == "1" {
        // As in `Limit::default_cost`.
        return format!("{capacity} {kind}, {refilled} back a second, a call names its cost");
    }
    format!("{capacity} {kind}, {refilled} back a second, {cost} a call")
}

fn standing(bucket: &BucketView) -> Line<'static> {
    let what = match (bucket.is_concurrent(), bucket.shares.is_empty()) {
        (true, true) => " slots free",
        (true, false) => " slots free that no share has",
        (false, _) => "",
    };
    let level = format!(" {} of {}{what}", amount(bucket.level), amount(bucket.capacity));
    let share = bucket.level / bucket.capacity * 100.0;
    let mut spans = vec![
        Span::styled(level, STRONG.patch(figure::level_style(bucket))),
        Span::styled(format!("  {share:.0} %"), FAINT),
    ];
    if bucket.wait_secs > 0.0 {
        let why = if bucket.level < 0.0 {
            "booked ahead: the next start"
        } else {
            "less than a call costs: the next"
        };
        let wait = format!("  {why} is in {}", exact_wait(bucket.wait_secs));
        spans.push(Span::styled(wait, Style::new().fg(BAD)));
    }
    spans.into()
}

fn draw_chart(buffer: &mut Buffer, area: Rect, view: &View, bucket: &BucketView, at: f64) {
    let columns = usize::from(area.width).saturating_sub(2);
    let Some(series) = view.series(&bucket.name) else { return };
    let known = series.points().next().map_or(0.0, |first| at - first.at);
    let secs = known.clamp(*CHART_SECS.start(), *CHART_SECS.end());
    let values = series.used(at, secs, columns);
    let taken = if bucket.is_concurrent() { "granted" } else { "used" };
    let writes =
        bucket.writes_per_sec.map_or_else(String::new, |writes| format!(", writes/s {}", rate(writes)));
    let title = Line::from_iter([
        Span::styled(format!(" {taken}/s {}", used(bucket)), STRONG),
        Span::styled(
            format!("{writes}; highest {} in the last {}", rate(figure::highest(&values)), span(secs)),
            FAINT,
        ),
    ]);
    let rows = usize::from(area.height.saturating_sub(2));
    let chart = figure::chart(&values, rows).into_iter();
    let chart = chart.map(|row| Line::from_iter([" ".into(), Span::styled(row, Style::new().fg(USE))]));
    lines(buffer, area, [Line::default(), title].into_iter().chain(chart));
}

fn facts(bucket: &BucketView, now: f64) -> Vec<Line<'static>> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, text: String, style: Style| {
        facts.push(Line::from_iter([Span::styled(format!(" {name:<9} "), FAINT), Span::styled(text, style)]));
    };
    let (plain, scarce, bad) = (Style::new(), Style::new().fg(SCARCE), Style::new().fg(BAD));
    if let Some(until) = bucket.cooling_until.filter(|until| *until > now) {
        fact("cool-down", format!("ends {}; nothing is granted before", relative(until - now)), bad);
    }
    for share in &bucket.shares {
        fact("share", share_text(share), if share.level <= 0.0 { scarce } else { plain });
    }
    if let Some(drift) = bucket.drift {
        let what = if drift < 0.0 { "too many" } else { "lost" };
        let then = "corrected if the next sweep finds it too";
        fact("drift", format!("slots {what}: {}; {then}", amount(drift.abs())), scarce);
    }
    if let Some(reported) = &bucket.vendor_limit {
        let window = if reported.window_secs > 0.0 {
            format!(" in {}", span(reported.window_secs))
        } else {
            String::new()
        };
        let when = relative(reported.at - now);
        let lower = if reported.is_lower { ", lower than the bucket's" } else { "" };
        let style = if reported.is_lower { scarce } else { plain };
        fact("vendor", format!("reported {}{window} {when}{lower}", amount(reported.limit)), style);
    }
    if let Some(load) = &bucket.load {
        fact("load", measured(load, now), plain);
        fact("refused", refused_text(load, bucket), plain);
        if load.leaked > 0.0 {
            let since =
                load.still_since.map_or_else(String::new, |since| format!(" for {}", span(now - since)));
            fact(
                "leak",
                format!("{} slots are taken, and nobody has been active{since}", amount(load.leaked)),
                bad,
            );
        }
    } else if bucket.is_concurrent() {
        fact("load", "not measured yet: the next sweep measures it".into(), FAINT);
    }
    if !facts.is_empty() {
        facts.insert(0, Line::default());
    }
    facts
}

fn share_text(share: &ShareView) -> String {
    let background = if share.is_background { ", background" } else { "" };
    let (level, capacity) = (amount(share.level), amount(share.capacity));
    if let Some(slots) = share.slots {
        let part = |what: &str, slots: f64| {
            if slots > 0.0 { format!(", {what} {}", amount(slots)) } else { String::new() }
        };
        let (lent, borrowed) = (part("lent", slots.lent), part("borrowed", slots.borrowed));
        let noted = match slots {
            ShareOfSlots { is_going: true, .. } => "; removed".to_owned(),
            ShareOfSlots { is_closed: false, has_row: false, .. } => {
                "; its row is missing or cannot be read".to_owned()
            }
            ShareOfSlots { changes_to: Some(then), .. } => format!("; becomes {}", amount(then)),
            _ => String::new(),
        };
        // While it shrinks, calls may still hold more slots than the line has.
        let (level, beyond) = match share.level < 0.0 {
            true => ("0".to_owned(), format!(", {} held beyond that", amount(-share.level))),
            false => (level, String::new()),
        };
        return format!(
            "{}: {level} of {capacity} free{beyond}{lent}{borrowed}{background}{noted}",
            share.name
        );
    }
    let used = share.used_per_sec.map_or_else(String::new, |used| format!(", used/s {}", rate(used)));
    let part = |what: &str, per_sec: Option<f64>| {
        let per_sec = per_sec.filter(|per_sec| *per_sec > 0.0);
        per_sec.map_or_else(String::new, |per_sec| format!(", {what}/s {}", rate(per_sec)))
    };
    let (lent, borrowed) = (part("lent", share.lent_per_sec), part("borrowed", share.borrowed_per_sec));
    format!(
        "{}: {level} of {capacity}, {} a second{used}{lent}{borrowed}{background}",
        share.name,
        rate(share.refill_rate)
    )
}

fn measured(load: &LoadView, now: f64) -> String {
    let Some(at) = load.measured_at else { return "not measured yet: the next sweep measures it".into() };
    let drain = load
        .drain_rate
        .map_or_else(|| "drain rate not known yet".into(), |drain| format!("{}/s drain", rate(drain)));
    let since = load.pending_since.map_or_else(String::new, |since| format!(" since {}", span(now - since)));
    format!(
        "{} pending{since}, {drain}; measurement {} was {}",
        amount(load.pending),
        load.sequence,
        relative(at - now)
    )
}

fn refused_text(load: &LoadView, bucket: &BucketView) -> String {
    let lately = bucket.refused_per_sec.map_or_else(String::new, |refused| format!(" ({}/s)", rate(refused)));
    let crowd = if load.crowd > 0 {
        format!(", slots wanted by {}", count(load.crowd, "process"))
    } else {
        String::new()
    };
    format!("{}{lately} so far{crowd}; expired holders: {}", load.refused, load.expired_holders)
}

fn draw_holders(buffer: &mut Buffer, area: Rect, bucket: &BucketView, scrolled: usize, now: f64) {
    let head = match (bucket.leases, bucket.is_concurrent()) {
        (0, false) => Line::styled(" no leases: tokens refill by themselves", FAINT),
        (0, true) if bucket.shares.is_empty() => Line::styled(" nobody holds a slot", FAINT),
        (0, true) => Line::styled(" nobody holds a slot of the common line", FAINT),
        (leases, _) => Line::from_iter([
            Span::styled(format!(" {}", count(leases, "holder")), STRONG),
            Span::styled(format!(" of {}{}", amount(bucket.held), part(bucket, scrolled)), FAINT),
        ]),
    };
    let who = usize::from(area.width).saturating_sub(48).clamp(10, 60);
    let columns = format!(" {:<who$} {:>6} {:>9} {:>11}  {:<8}", "WHO", "COST", "HELD FOR", "UNTIL", "ID");
    let table = (bucket.leases > 0).then(|| Line::styled(columns, FAINT));
    let rows = bucket.holders.iter().skip(scrolled).map(|holder| holder_row(holder, who, now));
    lines(buffer, area, [Line::default(), head].into_iter().chain(table).chain(rows));
}

fn part(bucket: &BucketView, scrolled: usize) -> String {
    let named = if bucket.leases > MOST_HOLDERS {
        format!("; the {MOST_HOLDERS} that end first")
    } else {
        String::new()
    };
    if scrolled > 0 { format!("{named}; from number {}", scrolled + 1) } else { named }
}

fn holder_row(holder: &Holder, who: usize, now: f64) -> Line<'static> {
    let unknown = if holder.inline { "(inline)" } else { "?" };
    let name = holder.caller.as_deref().unwrap_or(unknown);
    let borrowed =
        holder.borrowed_by.as_ref().map_or_else(String::new, |share| format!(", borrowed by {share}"));
    // The name is cut first.
    let room = who.saturating_sub(borrowed.chars().count()).max(who / 3);
    let caller = cut(&format!("{}{borrowed}", cut(name, room)), who);
    let held = holder.created_at.map_or_else(|| "-".into(), |since| span((now - since).max(0.0)));
    let (cost, until) = (amount(holder.cost), relative(holder.ends - now));
    let row = format!(" {caller:<who$} {cost:>6} {held:>9} {until:>11}  {:<8}", id(&holder.id));
    let (remark, colour) = match holder {
        Holder { overdue: true, .. } => ("  overdue", BAD),
        Holder { ended: true, .. } => ("  ended", SCARCE),
        _ => ("", SCARCE),
    };
    Line::from_iter([row.into(), Span::styled(remark, Style::new().fg(colour))])
}
