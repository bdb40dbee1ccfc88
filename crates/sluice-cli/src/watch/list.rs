//! The list of buckets: one line for each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::figure::{self, BAD, FAINT, SCARCE, STRONG, USE};
use super::lines::lines;
use super::sort::{Sort, shown, wait};
use super::words::{Truncated, amount, rate};
use crate::duration;
use crate::view::{BucketView, Picture, View};

/// The widths of the columns.
#[derive(Clone, Copy, Debug)]
struct Widths {
    name: usize,
    gauge: usize,
    level: usize,
    sparkline: usize,
    /// How much of a shortened name is its end, so that names stay different.
    end: Truncated,
    /// Whether there are columns for refusals, drain rate and pending work.
    has_load: bool,
    /// Whether there is room for every remark.
    has_remarks: bool,
}

/// The columns beside name, gauge, level and sparkline: cursor, use, holders, wait, and the spaces between.
const FIXED: usize = 24;
/// Room for one remark; on a wide screen, for three.
const REMARKS: [usize; 2] = [11, 33];
const LOAD: usize = 24;
/// The smallest width of a gauge, with its two edges; and the smallest width for a gauge with a sparkline.
const SMALLEST: usize = 5;
const TWO_PICTURES: usize = 10;
const WIDE: u16 = 120;
/// The time span of a sparkline.
const SPARKLINE_SECS: f64 = 60.0;

impl Widths {
    /// Names come first, in full. Gauge and sparkline share the rest. On a narrow screen they go first, then
    /// the room for remarks; names are cut last.
    fn of(width: u16, buckets: &[&BucketView], is_live: bool) -> Self {
        let longest =
            |of: fn(&BucketView) -> usize| buckets.iter().map(|bucket| of(bucket)).max().unwrap_or(0);
        let level = longest(|bucket| level(bucket).chars().count()).max(9);
        let most = usize::from(width).saturating_sub(FIXED + level);
        let name = longest(|bucket| bucket.name.chars().count()).clamp(6, most.max(6));
        let room = most.saturating_sub(name);
        // Columns without a figure, and room that few remarks need, are worth less than the pictures.
        let fits = |columns: usize| width >= WIDE && room >= columns + TWO_PICTURES;
        let has_load = buckets.iter().any(|bucket| bucket.load.is_some()) && fits(REMARKS[0] + LOAD);
        let load = if has_load { LOAD } else { 0 };
        let has_remarks = fits(REMARKS[1] + load);
        let rest = room.saturating_sub(REMARKS[usize::from(has_remarks)] + load);
        // A printed frame has only two surveys, so there is no history for a sparkline.
        let gauge = if is_live && rest >= TWO_PICTURES { rest * 11 / 20 } else { rest };
        let gauge = if gauge < SMALLEST { 0 } else { gauge.min(40) };
        let sparkline = if is_live && rest >= TWO_PICTURES { (rest - gauge).min(60) } else { 0 };
        let end = Truncated::apart(buckets.iter().map(|bucket| bucket.name.as_str()), name);
        Self { name, gauge, level, sparkline, end, has_load, has_remarks }
    }
}

/// Which buckets the list shows, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) filter: &'a str,
    pub(super) sort: Sort,
    /// The bucket under the cursor.
    pub(super) selected: Option<&'a str>,
    /// False for a frame that is printed as text: it has no cursor.
    pub(super) is_live: bool,
}

fn level(bucket: &BucketView) -> String {
    format!("{}/{}", amount(bucket.level), amount(bucket.capacity))
}

pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    view: &View,
    picture: &Picture,
    rows: &Rows<'_>,
    now: f64,
) {
    let Rows { filter, sort, selected, is_live } = *rows;
    let buckets = shown(&picture.buckets, filter, sort, now);
    let widths = Widths::of(area.width, &buckets, is_live);
    let [head, body] = [Rect { height: area.height.min(1), ..area }, below(area)];
    lines(buffer, head, [header(widths)]);
    if buckets.is_empty() {
        lines(buffer, body, [Line::styled(empty(picture, filter), FAINT)]);
        return;
    }
    let at = selected.and_then(|name| buckets.iter().position(|bucket| bucket.name == name)).unwrap_or(0);
    // Scrolled so that the cursor stays on the screen.
    let first = (at + 1).saturating_sub(usize::from(body.height));
    let rows = buckets.iter().enumerate().skip(first).map(|(n, bucket)| {
        let is_selected = n == at && is_live;
        row(view, bucket, widths, is_selected, picture.at, now)
    });
    lines(buffer, body, rows);
}

fn below(area: Rect) -> Rect {
    Rect { y: area.y.saturating_add(1), height: area.height.saturating_sub(1), ..area }
}

fn empty(picture: &Picture, filter: &str) -> String {
    if picture.buckets.is_empty() {
        " the table has no buckets; declare buckets with `sluice buckets apply FILE`".into()
    } else {
        format!(" no name contains {filter:?}")
    }
}

fn header(widths: Widths) -> Line<'static> {
    let Widths { name, gauge, level, sparkline, has_load, .. } = widths;
    let minute = if sparkline < 11 { "1 MIN" } else { "LAST MINUTE" };
    let minute = if sparkline == 0 { "" } else { minute };
    let level = if gauge > 0 { gauge + 1 + level } else { level };
    let mut text = format!(
        "  {:<name$} {:<level$} {:>6} {minute:<sparkline$} {:>4} {:>5}",
        "BUCKET", "LEVEL", "USE/s", "HOLD", "WAIT"
    );
    if has_load {
        text += &format!(" {:>7} {:>7} {:>7}", "NO SLOT", "DRAIN/s", "PENDING");
    }
    Line::styled(text, FAINT)
}

fn row(
    view: &View,
    bucket: &BucketView,
    widths: Widths,
    is_selected: bool,
    at: f64,
    now: f64,
) -> Line<'static> {
    let Widths { name, gauge, level: level_width, sparkline, end, has_load, has_remarks } = widths;
    let cursor = if is_selected { "▸ " } else { "  " };
    let marked = if is_selected { STRONG.add_modifier(Modifier::REVERSED) } else { STRONG };
    let name = format!("{:<name$}", end.of(&bucket.name, name));
    let mut spans = vec![Span::raw(cursor), Span::styled(name, marked), " ".into()];
    if gauge > 0 {
        spans.extend(figure::gauge(bucket, gauge));
        spans.push(" ".into());
    }
    spans.push(format!("{:<level_width$} {:>6} ", level(bucket), used(bucket)).into());
    let history = view
        .series(&bucket.name)
        .map(|series| series.used(at, SPARKLINE_SECS, sparkline))
        .unwrap_or_default();
    spans.push(Span::styled(format!("{:<sparkline$} ", figure::sparkline(&history)), Style::new().fg(USE)));
    let holders =
        if bucket.leases == 0 && !bucket.is_concurrent() { "-".into() } else { amount_of(bucket.leases) };
    spans.push(format!("{holders:>4} ").into());
    spans.push(waiting(bucket, now));
    if has_load {
        spans.extend(load(bucket));
    }
    let mut remarks = remarks(bucket, now);
    if !has_remarks {
        shorten(&mut remarks);
    }
    for (text, style) in remarks {
        spans.push(" ".into());
        spans.push(Span::styled(text, style));
    }
    spans.into()
}

#[allow(clippy::cast_precision_loss)]
fn amount_of(count: usize) -> String {
    amount(count as f64)
}

pub(super) fn used(bucket: &BucketView) -> String {
    let more = if bucket.used_is_least && bucket.used_per_sec > Some(0.0) { ">" } else { "" };
    bucket.used_per_sec.map_or_else(|| "-".into(), |used| format!("{more}{}", rate(used)))
}

fn waiting(bucket: &BucketView, now: f64) -> Span<'static> {
    match wait(bucket, now) {
        secs if secs > 0.0 => Span::styled(format!("{:>5}", duration::wait(secs)), Style::new().fg(BAD)),
        _ => format!("{:>5}", "-").into(),
    }
}

fn load(bucket: &BucketView) -> [Span<'static>; 3] {
    let cell = |value: Option<String>| Span::raw(format!(" {:>7}", value.unwrap_or_else(|| "-".into())));
    let load = bucket.load.as_ref();
    [
        cell(
            bucket
                .refused_per_sec
                .map(|refused| if refused > 0.0 { rate(refused) + "/s" } else { "0".into() }),
        ),
        cell(load.and_then(|load| load.drain_rate).map(rate)),
        cell(load.map(|load| amount(load.pending))),
    ]
}

/// Unusual states, the most urgent first.
pub(super) fn remarks(bucket: &BucketView, now: f64) -> Vec<(String, Style)> {
    let (bad, scarce) = (Style::new().fg(BAD), Style::new().fg(SCARCE));
    let mut remarks = Vec::new();
    // The column of waits shows for how long.
    if bucket.cooling_until.is_some_and(|until| until > now) {
        remarks.push(("cooling".into(), bad));
    }
    if let Some(leaked) = bucket.load.as_ref().map(|load| load.leaked).filter(|leaked| *leaked > 0.0) {
        remarks.push((format!("leak {}", amount(leaked)), bad));
    }
    if bucket.overdue > 0 {
        remarks.push((format!("overdue {}", amount_of(bucket.overdue)), bad));
    } else if bucket.ended > 0 {
        remarks.push((format!("ended {}", amount_of(bucket.ended)), scarce));
    }
    match bucket.drift {
        Some(drift) if drift < 0.0 => remarks.push((format!("extra {}", amount(-drift)), scarce)),
        Some(drift) if drift > 0.0 => remarks.push((format!("lost {}", amount(drift)), scarce)),
        _ => {}
    }
    if bucket.vendor_limit.as_ref().is_some_and(|reported| reported.is_lower) {
        remarks.push(("lower".into(), scarce));
    }
    remarks
}

/// Shortens the remarks to the first one and the number of the others.
fn shorten(remarks: &mut Vec<(String, Style)>) {
    let more = remarks.len().saturating_sub(1);
    remarks.truncate(1);
    if more > 0 {
        remarks.push((format!("+{more}"), FAINT));
    }
}
