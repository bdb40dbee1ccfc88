//! The state of the screen, and what keys change.

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::figure::{FAINT, STRONG};
use super::lines::{line, lines};
use super::list::Rows;
use super::sort::{Sort, shown};
use super::{alerts, detail, list};
use crate::view::{Picture, View};

/// What is shown, and how.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) filter: String,
    pub(super) sort: Sort,
    /// The bucket under the cursor, by name, because the order of buckets changes.
    pub(super) selected: Option<String>,
    pub(super) page: Page,
    /// Whether the user is typing the filter.
    pub(super) is_typing: bool,
    /// How many holders are scrolled past.
    pub(super) scrolled: usize,
    /// False for a frame that is printed as text: it has no cursor and no keys.
    pub(super) is_live: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    List,
    Bucket(String),
    Help,
}

/// What happens after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextScreen {
    GoOn,
    Quit,
}

const HELP: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    ("↑ ↓ j k", "select a bucket; scroll its holders (PgUp, PgDn: ten at once)"),
    ("Enter", "open the bucket"),
    ("Esc", "back; without the filter"),
    ("/", "show only names that contain a text"),
    ("s", "sort by name, level, use, holders, wait"),
    ("", ""),
    ("LEVEL", "tokens or free slots, of the capacity"),
    ("USE/s", "taken a second, less what was given back; > if it may be more"),
    ("HOLD", "leases; rate limits have none by default"),
    ("WAIT", "time until a call that comes now may start"),
    ("NO SLOT", "refused a second for want of a slot; rates: sluice.refusals"),
    ("DRAIN/s", "slots that come free a second, as sweeps measured it"),
    ("PENDING", "slots that are held, as the last sweep counted"),
    ("cooling", "a cool-down: nothing is granted before its end"),
    ("ended", "leases that have ended and are not given back yet"),
    ("overdue", "leases that ended over 11 minutes ago: two sweeps missed them"),
    ("lost, extra", "slots that the last sweep found lost or too many"),
    ("lower", "the vendor reported a lower limit than the bucket's"),
    ("leak", "slots that are taken while nobody is active"),
];

impl Screen {
    pub(super) const fn new(filter: String, sort: Sort) -> Self {
        Self { filter, sort, selected: None, page: Page::List, is_typing: false, scrolled: 0, is_live: true }
    }

    /// The same screen for a printed frame.
    pub(super) fn into_text(self) -> Self {
        Self { is_live: false, page: Page::List, ..self }
    }

    /// The rows of a frame that shows every bucket, with title, alert, header and cost.
    pub(super) fn rows(&self, picture: &Picture) -> usize {
        shown(&picture.buckets, &self.filter, self.sort, picture.at).len().max(1) + 4
    }

    /// Draws a frame: title, alert, page, cost of reading, keys.
    pub(super) fn draw(&self, buffer: &mut Buffer, area: Rect, view: &View, now: f64) {
        let [title, alert, page, cost, keys] = parts(area, self.is_live);
        line(buffer, title, &alerts::title(view, title.width, now));
        line(buffer, alert, &alerts::alert(view, alert.width, now));
        match (&self.page, &view.picture) {
            (Page::Help, _) => help(buffer, page),
            (_, None) => line(buffer, page, &Line::styled(" reading the table …", FAINT)),
            (Page::List, Some(picture)) => list::draw(buffer, page, view, picture, &self.list(), now),
            (Page::Bucket(name), Some(picture)) => {
                detail::draw(buffer, page, view, picture, name, self.scrolled, now)
            }
        }
        if let Some(picture) = &view.picture {
            line(buffer, cost, &alerts::cost(&picture.cost));
        }
        if self.is_live {
            line(buffer, keys, &self.keys());
        }
    }

    /// The rows that the list shows.
    fn list(&self) -> Rows<'_> {
        let Self { filter, sort, selected, is_live, .. } = self;
        Rows { filter, sort: *sort, selected: selected.as_deref(), is_live: *is_live }
    }

    fn keys(&self) -> Line<'static> {
        if self.is_typing {
            let hint = Span::styled("  Enter keeps it, Esc drops it", FAINT);
            return vec![Span::styled(" filter: ", STRONG), self.filter.clone().into(), "▏".into(), hint]
                .into();
        }
        let sort = format!("sort: {}", self.sort.name());
        let filter =
            if self.filter.is_empty() { "filter".into() } else { format!("filter: {}", self.filter) };
        let keys: Vec<(&str, String)> = match self.page {
            Page::List => vec![
                ("q", "quit".into()),
                ("/", filter),
                ("s", sort),
                ("↑↓", "select".into()),
                ("Enter", "open".into()),
                ("?", "help".into()),
            ],
            Page::Bucket(_) => {
                vec![
                    ("q", "quit".into()),
                    ("Esc", "back".into()),
                    ("↑↓", "holders".into()),
                    ("?", "help".into()),
                ]
            }
            Page::Help => vec![("q", "quit".into()), ("Esc", "back".into())],
        };
        let spans = keys.into_iter().flat_map(|(key, what)| {
            [Span::raw(" "), Span::styled(key.to_owned(), STRONG), Span::styled(format!(" {what} "), FAINT)]
        });
        Line::from_iter(spans)
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent, view: &View, now: f64) -> NextScreen {
        if key.kind == KeyEventKind::Release {
            return NextScreen::GoOn;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return NextScreen::Quit;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return NextScreen::GoOn;
        }
        match key.code {
            KeyCode::Char('q') => return NextScreen::Quit,
            KeyCode::Char('/') => (self.page, self.is_typing) = (Page::List, true),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('?') if self.page == Page::Help => self.page = Page::List,
            KeyCode::Char('?') => self.page = Page::Help,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            KeyCode::Enter | KeyCode::Right => self.open(view, now),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1, view, now),
            KeyCode::Down | KeyCode::Char('j') => self.go(1, view, now),
            KeyCode::PageUp => self.go(-10, view, now),
            KeyCode::PageDown => self.go(10, view, now),
            KeyCode::Home => self.go(isize::MIN, view, now),
            KeyCode::End => self.go(isize::MAX, view, now),
            _ => {}
        }
        NextScreen::GoOn
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    fn back(&mut self) {
        if self.page == Page::List {
            self.filter.clear();
        }
        self.page = Page::List;
    }

    fn open(&mut self, view: &View, now: f64) {
        let (names, at) = self.names(view, now);
        if let Some(name) = names.into_iter().nth(at)
            && self.page == Page::List
        {
            self.scrolled = 0;
            self.page = Page::Bucket(name);
        }
    }

    /// Moves the cursor, or scrolls the holders of an open bucket.
    fn go(&mut self, by: isize, view: &View, now: f64) {
        match &self.page {
            Page::List => {
                let (names, at) = self.names(view, now);
                let to = at.saturating_add_signed(by).min(names.len().saturating_sub(1));
                self.selected = names.into_iter().nth(to);
            }
            Page::Bucket(name) => {
                let bucket = view
                    .picture
                    .iter()
                    .flat_map(|picture| &picture.buckets)
                    .find(|bucket| bucket.name == *name);
                let most = bucket.map_or(0, |bucket| bucket.holders.len().saturating_sub(1));
                self.scrolled = self.scrolled.saturating_add_signed(by).min(most);
            }
            Page::Help => {}
        }
    }

    /// The names in the list, in order, and the position of the cursor.
    fn names(&self, view: &View, now: f64) -> (Vec<String>, usize) {
        let buckets = view.picture.as_ref().map_or(&[][..], |picture| &picture.buckets);
        let names: Vec<String> =
            shown(buckets, &self.filter, self.sort, now).iter().map(|one| one.name.clone()).collect();
        let at = self.selected.as_ref().and_then(|selected| names.iter().position(|name| name == selected));
        (names, at.unwrap_or(0))
    }
}

/// The areas of title, alert, page, cost and keys.
fn parts(area: Rect, has_keys: bool) -> [Rect; 5] {
    let (row, keys) = (Constraint::Length(1), Constraint::Length(u16::from(has_keys)));
    Layout::vertical([row, row, Constraint::Min(0), row, keys]).areas(area)
}

fn help(buffer: &mut Buffer, area: Rect) {
    let rows = HELP
        .iter()
        .map(|(key, what)| Line::from_iter([Span::styled(format!("  {key:<12} "), STRONG), (*what).into()]));
    lines(buffer, area, rows);
}
