//! Tests of frames of an invented table, and of keys.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sluice_ops::LeaseRow;
use sluice_sdk::StoreError;
use sluice_sdk::core::Timestamp;

use super::screen::{NextScreen, Page, Screen};
use super::sort::{Sort, shown};
use super::*;
use crate::view::sample::{Row, lease, lease_that_borrowed, survey};
use crate::view::{SurveyReading, View};

/// When the last survey was: 12:00:00 UTC on the first day of the epoch.
const NOW_SECS: u32 = 43_200;
const NOW: f64 = 43_200.0;
const SLOTS: &str = "elevenlabs#concurrent";

fn requests(name: &str, capacity: i64, tokens: i64) -> Row {
    Row::rate(name, capacity * 1_000_000, 10)
        .tokens(tokens * 1_000_000)
        .anchor(i64::from(NOW_SECS) * 1_000_000)
}

/// A busy table, `ago` seconds before the last survey.
fn rows(ago: i64) -> (Vec<Row>, Vec<LeaseRow>, Vec<Row>) {
    let buckets = vec![
        requests("anthropic#rpm", 50, 50),
        requests("openai#gpt-4o-mini#tpm", 30_000, 12_000 + ago * ago * 10).writes(99 - ago),
        requests("openai#rpm", 500, ago * 20 - 50).writes(99 - ago),
        requests("vendor#with-a-long-name#rpm", 100, 30).number("blocked_until", "43212"),
        Row::slots(SLOTS, 5)
            .tokens(2_000_000)
            .number("admitted", &(90 - ago * 2).to_string())
            .writes(99 - ago),
        Row::slots("deepgram#concurrent", 4)
            .number("drift", "1")
            .number("drift_seen_at", "43000")
            .number("vendor_limit", "3")
            .number("vendor_limit_at", "43080"),
        Row::rate("broken#rpm", 0, 0),
    ];
    let leases = vec![
        lease(SLOTS, "0193a1b2-aaaa-bbbb-cccc-00000000dead", "nightly-import", 42_600, 43_140),
        lease(SLOTS, "0193a1b2-aaaa-bbbb-cccc-00000000beef", "checkout", 43_190, 43_250),
        lease(SLOTS, "0193a1b2-aaaa-bbbb-cccc-00000000cafe", "checkout", 43_195, 43_255),
    ];
    let loads = vec![
        Row::load(SLOTS)
            .number("pending", "3")
            .number("drain_rate", "1.5")
            .number("measured_at", "43170")
            .number("sequence", "12")
            .number("pending_since", "42600")
            .number("refused", &(70 - ago * 3).to_string())
            .number("outlived", "1"),
    ];
    (buckets, leases, loads)
}

fn view() -> View {
    let mut view = View::new("ontopix-vendor-buckets-prod");
    for ago in (0..10_u32).rev() {
        let (buckets, leases, loads) = rows(i64::from(ago));
        let survey = survey(NOW_SECS - ago, &buckets, leases, &loads);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    }
    view
}

fn screen() -> Screen {
    Screen::new(String::new(), Sort::Name)
}

/// What a terminal of this size shows.
fn frame(screen: &Screen, view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let area = ratatui::layout::Rect::new(0, 0, width, height);
    let drawn = terminal.draw(|frame| screen.draw(frame.buffer_mut(), area, view, NOW)).unwrap();
    let rows = drawn.buffer.content().chunks(usize::from(width));
    let text =
        |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    rows.map(|row| text(row).trim_end().to_owned() + "\n").collect()
}

fn press(screen: &mut Screen, view: &View, keys: &[KeyCode]) -> NextScreen {
    let press = |code: &KeyCode| screen.press(KeyEvent::new(*code, KeyModifiers::NONE), view, NOW);
    keys.iter().map(press).last().unwrap()
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

#[track_caller]
fn assert_frame(frame: &str, golden: &str) {
    assert!(frame == golden, "the frame is\n{frame}\nand not\n{golden}");
}

/// Figures of a sweep take room only if there are any, and never that of the pictures.
#[test]
fn a_screen_of_120_columns_keeps_its_pictures() {
    let with_load = frame(&screen(), &view(), 120, 24);
    let head = |frame: &str| frame.lines().find(|line| line.contains("BUCKET")).unwrap().to_owned();
    assert!(head(&with_load).contains("LAST MINUTE") && head(&with_load).contains("NO SLOT"), "{with_load}");
    assert!(with_load.contains('█'), "{with_load}");
    let mut view = View::new("table");
    for ago in [1, 0] {
        let (buckets, leases, _) = rows(i64::from(ago));
        let survey = survey(NOW_SECS - ago, &buckets, leases, &[]);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    }
    let without = frame(&screen(), &view, 120, 24);
    assert!(head(&without).contains("LAST MINUTE") && !head(&without).contains("NO SLOT"), "{without}");
}

#[test]
fn the_list_fits_into_80_columns() {
    assert_frame(&frame(&screen(), &view(), 80, 24), include_str!("tests/list-80x24.txt"));
}

#[test]
fn names_are_cut_last_and_stay_apart() {
    let screen = screen();
    for line in frame(&screen, &view(), 80, 24).lines().filter(|line| line.contains('#')) {
        assert!(!line.contains("elevenlabs…"), "{line}");
    }
    let narrow = frame(&screen, &view(), 50, 24);
    let names = ["anthropic#rpm", "openai#gp", "openai#rpm", "vendor#wi", "deepgram#"];
    assert!(names.iter().all(|name| narrow.contains(name)), "{narrow}");
    let twins = ["azure#gpt-4o-west#rpm-live", "azure#gpt-4o-east#rpm-live", "azure#gpt-4o-east#tpm-live"];
    let cut = |width| twins.map(|name| words::Truncated::apart(twins.into_iter(), width).of(name, width));
    assert_eq!(cut(17), ["azur…est#rpm-live", "azur…ast#rpm-live", "azur…ast#tpm-live"]);
    let narrowest = words::Truncated::apart(["openai#rpm", "openai#tpm"].into_iter(), 6);
    assert_eq!(
        (narrowest.of("openai#rpm", 6), narrowest.of("openai#tpm", 6)),
        ("op…rpm".into(), "op…tpm".into())
    );
}

#[test]
fn a_wide_screen_shows_load_and_every_remark() {
    assert_frame(&frame(&screen(), &view(), 200, 50), include_str!("tests/list-200x50.txt"));
}

#[test]
fn an_opened_bucket_shows_who_holds_it() {
    let (mut screen, view) = (screen(), view());
    press(&mut screen, &view, &[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
    assert_frame(&frame(&screen, &view, 80, 24), include_str!("tests/bucket-80x24.txt"));
    press(&mut screen, &view, &[KeyCode::Down]);
    let scrolled = frame(&screen, &view, 80, 24);
    assert!(!scrolled.contains("nightly-import") && scrolled.contains("0000beef"), "{scrolled}");
    press(&mut screen, &view, &[KeyCode::Esc]);
    assert_eq!(screen.page, Page::List);
}

#[test]
fn a_printed_frame_has_every_bucket_and_no_keys() {
    let printed = anstream::adapter::strip_str(&once::frame(&view(), screen(), 80)).to_string();
    assert_frame(&printed, include_str!("tests/once-80.txt"));
}

#[test]
fn figures_are_printed_of_the_buckets_that_a_frame_shows() {
    let screen = Screen::new("CONCUR".into(), Sort::Holders);
    let figures = serde_json::to_value(once::figures(view(), &screen)).unwrap();
    let golden: serde_json::Value = serde_json::from_str(include_str!("tests/once.json")).unwrap();
    assert!(figures == golden, "the figures are\n{figures:#}\nand not\n{golden:#}");
}

#[test]
fn a_cursor_stays_on_its_bucket_in_any_order_and_on_the_screen() {
    let (mut screen, view) = (screen(), view());
    press(&mut screen, &view, &[KeyCode::End]);
    assert_eq!(screen.selected.as_deref(), Some("vendor#with-a-long-name#rpm"));
    let low = frame(&screen, &view, 80, 8);
    assert!(low.lines().any(|line| line.starts_with("▸ vendor")), "{low}");
    press(&mut screen, &view, &letters("s"));
    assert_eq!((screen.sort, screen.selected.as_deref()), (Sort::Level, Some("vendor#with-a-long-name#rpm")));
    press(&mut screen, &view, &[KeyCode::Up]);
    assert_eq!(screen.selected.as_deref(), Some("openai#rpm"), "the only one with a lower level");
}

#[test]
fn each_order_has_its_first() {
    let view = view();
    let buckets = &view.picture.as_ref().unwrap().buckets;
    let first = |sort| shown(buckets, "", sort, NOW)[0].name.as_str();
    assert_eq!(first(Sort::Name), "anthropic#rpm");
    assert_eq!(first(Sort::Level), "openai#rpm");
    assert_eq!(first(Sort::Use), "openai#rpm");
    assert_eq!(first(Sort::Holders), SLOTS);
    assert_eq!(first(Sort::Wait), "vendor#with-a-long-name#rpm");
}

#[test]
fn a_filter_is_typed_kept_and_dropped() {
    let (mut screen, view) = (screen(), view());
    press(&mut screen, &view, &letters("/OPENAIx"));
    press(&mut screen, &view, &[KeyCode::Backspace]);
    let typed = frame(&screen, &view, 80, 24);
    assert!(
        typed.contains("openai#rpm") && !typed.contains("anthropic") && typed.contains("filter: OPENAI"),
        "{typed}"
    );
    press(&mut screen, &view, &[KeyCode::Enter]);
    assert_eq!(press(&mut screen, &view, &letters("/q")), NextScreen::GoOn, "a letter of the filter");
    press(&mut screen, &view, &[KeyCode::Enter]);
    assert!(frame(&screen, &view, 80, 24).contains("no name contains \"OPENAIq\""));
    press(&mut screen, &view, &[KeyCode::Esc]);
    assert!(frame(&screen, &view, 80, 24).contains("anthropic"));
    assert_eq!(press(&mut screen, &view, &letters("q")), NextScreen::Quit);
}

#[test]
fn help_explains_every_column_and_goes_away() {
    let (mut screen, view) = (screen(), view());
    press(&mut screen, &view, &letters("?"));
    let help = frame(&screen, &view, 80, 24);
    for column in
        ["LEVEL", "USE/s", "HOLD", "WAIT", "NO SLOT", "DRAIN/s", "PENDING", "cooling", "leak", "Esc"]
    {
        assert!(help.contains(column), "{help}");
    }
    let wide = frame(&screen, &view, 200, 24);
    // Between the lines of the title and those of the keys.
    assert!(wide.lines().skip(2).take(20).all(|line| line.chars().count() <= 80), "{wide}");
    press(&mut screen, &view, &letters("?"));
    assert_eq!(screen.page, Page::List);
}

#[test]
fn a_table_that_cannot_be_read_is_told_over_its_last_picture() {
    let mut view = view();
    let error = || StoreError::Contended { operation: "Scan", message: "throttled".into() };
    for ago in [12, 7] {
        let at = Timestamp::from_secs(NOW_SECS - ago);
        view.take_in(SurveyReading { at, survey: Err(error()), every: Duration::from_secs(5) });
    }
    let wide = frame(&screen(), &view, 200, 24);
    assert!(wide.contains("throttled") && !wide.contains("nothing was applied"), "{wide}");
    let frame = frame(&screen(), &view, 80, 24);
    assert!(frame.contains("not read for 12s (2 tries): Scan met"), "{frame}");
    assert!(frame.contains("openai#rpm"), "{frame}");
}

#[test]
fn an_outage_says_what_is_the_matter_in_80_columns() {
    let mut view = view();
    let message = "dispatch failure: io error: client error (Connect): tcp connect error: Connection refused (os error 111)";
    let error = StoreError::Unavailable { operation: "Scan", message: message.into(), maybe_applied: false };
    let at = Timestamp::from_secs(NOW_SECS - 12);
    view.take_in(SurveyReading { at, survey: Err(error), every: Duration::from_secs(5) });
    let narrow = frame(&screen(), &view, 80, 24);
    assert!(narrow.contains("(1 try): tcp connect error: Connection refused (os error 111)"), "{narrow}");
    let wide = frame(&screen(), &view, 300, 24);
    assert!(
        wide.contains(&format!("DynamoDB is unavailable (Scan): {message}; check the network")),
        "{wide}"
    );
}

#[test]
fn an_outage_names_the_address_in_80_columns() {
    let refused = "no connection to http://127.0.0.1:1: tcp connect error: Connection refused (os error 111)";
    let out = "DynamoDB has answered nothing for 4.0 s, and nothing is sent until it does";
    for message in [refused.to_owned(), format!("{out} ({refused})")] {
        let mut view = view();
        let error = StoreError::Unavailable { operation: "Scan", message, maybe_applied: false };
        let at = Timestamp::from_secs(NOW_SECS - 12);
        view.take_in(SurveyReading { at, survey: Err(error), every: Duration::from_secs(5) });
        let narrow = frame(&screen(), &view, 80, 24);
        assert!(narrow.contains("(1 try): no connection to http://127.0.0.1:1: Connection refu"), "{narrow}");
    }
}

#[test]
fn buckets_that_cannot_be_read_are_named_before_leases() {
    let text = |buckets: &[&str]| {
        let buckets: Vec<Row> = buckets.iter().map(|name| Row::rate(name, 0, 0)).collect();
        let mut bad = lease("a#concurrent", "a", "nobody", 0, 60);
        bad.lease = sluice_sdk::core::Lease::read(&Row::load(&bad.key));
        let survey = survey(NOW_SECS, &buckets, vec![bad], &[]);
        let mut view = View::new("table");
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
        frame(&screen(), &view, 200, 24)
    };
    assert!(text(&["openai#rpm", "x#tpm"]).contains("cannot be read: openai#rpm, x#tpm, and 1 more"));
    let one = text(&["openai#rpm"]);
    assert!(one.contains("cannot be read: openai#rpm (attribute") && one.contains("), and 1 more"), "{one}");
    assert!(text(&[]).contains("cannot be read: lease#a#concurrent#a ("));
}

#[test]
fn a_table_without_buckets_says_what_to_do() {
    let mut view = View::new("table");
    assert!(frame(&screen(), &view, 80, 24).contains("reading the table"));
    let survey = survey(NOW_SECS, &[], vec![], &[]);
    view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    assert!(frame(&screen(), &view, 80, 24).contains("sluice buckets apply FILE"));
}

#[test]
fn an_opened_bucket_shows_its_shares() {
    let mut view = View::new("table");
    for (ago, level) in [(10, 20_000_000), (0, -3_000_000)] {
        let row = requests("openai#rpm", 20, 20).share("search", (50_000_000, level), 1).writes(20 - ago);
        let survey = survey(NOW_SECS - u32::try_from(ago).unwrap(), &[row], vec![], &[]);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    }
    let screen = Screen { page: Page::Bucket("openai#rpm".into()), ..screen() };
    let shown = frame(&screen, &view, 80, 24);
    assert!(shown.contains("17 of 70"), "the bucket as a whole\n{shown}");
    assert!(shown.contains("search: -3 of 50, 1 a second, used/s 2.3"), "{shown}");
    assert!(shown.contains("common: 20 of 20, 10 a second, used/s 0"), "{shown}");
}

#[test]
fn an_opened_bucket_of_rates_shows_what_its_shares_lend_and_borrow() {
    let mut view = View::new("table");
    for (ago, loans) in [(10, (4, 0)), (0, (34, 10))] {
        let row =
            requests("openai#rpm", 20, 20).share_with_loans("search", (50_000_000, 20_000_000), 1, loans);
        let row = row.writes(20 - ago);
        let survey = survey(NOW_SECS - u32::try_from(ago).unwrap(), &[row], vec![], &[]);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    }
    let shown = frame(&Screen { page: Page::Bucket("openai#rpm".into()), ..screen() }, &view, 80, 24);
    assert!(shown.contains("lent/s 3, borrowed/s 1"), "thirty and ten in ten seconds\n{shown}");
}

#[test]
fn an_opened_bucket_of_slots_shows_what_its_shares_lend_and_borrow() {
    let mut view = View::new("table");
    let search = format!("{SLOTS}@search");
    let rows = [
        Row::slots(SLOTS, 3).tokens(1_000_000).slot_share("search", 5),
        Row::slots(&search, 5).tokens(2_000_000),
    ];
    let leases = vec![
        lease(SLOTS, "a", "worker-1", NOW_SECS - 5, NOW_SECS + 60),
        lease_that_borrowed("search", SLOTS, "b", NOW_SECS - 5, NOW_SECS + 60),
    ];
    let survey = survey(NOW_SECS, &rows, leases, &[]);
    view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    let shown = frame(&Screen { page: Page::Bucket(SLOTS.into()), ..screen() }, &view, 80, 24);
    assert!(shown.contains("8 at once, 3 of them in no share, 1 a call"), "{shown}");
    assert!(shown.contains("1 of 3 slots free that no share has"), "{shown}");
    assert!(shown.contains("search: 2 of 5 free, borrowed 1"), "{shown}");
    assert!(shown.contains("common: 1 of 3 free, lent 1"), "{shown}");
    assert!(shown.contains("borrower, borrowed by search"), "{shown}");
}

/// However small the terminal is, and whatever page is on it.
#[test]
fn no_size_of_a_terminal_is_too_small() {
    let view = view();
    for page in [Page::List, Page::Help, Page::Bucket(SLOTS.into()), Page::Bucket("gone#rpm".into())] {
        for (width, height) in [(1, 1), (3, 40), (20, 5), (40, 10), (79, 3), (500, 2)] {
            let screen = Screen { page: page.clone(), ..screen() };
            assert_eq!(frame(&screen, &view, width, height).lines().count(), usize::from(height));
        }
    }
}

#[test]
fn words_are_short() {
    let amounts = [0.0, -0.04, 0.5, 12.34, 99.96, 1_234.0, 12_345.0, 999_940.0, 1_500_000.0, -500.0];
    let text = ["0", "0", "0.5", "12.3", "100", "1234", "12.3k", "999.9k", "1.5M", "-500"];
    assert_eq!(amounts.map(words::amount), text);
    assert_eq!([0.0, 0.034, 0.999, 1.25].map(words::rate), ["0", "0.03", "1", "1.2"]);
    assert_eq!(words::cut("elevenlabs#concurrent", 11), "eleven…rent");
    assert_eq!([0, 1, 2, 4].map(|width| words::cut("openai#rpm", width)), ["", "…", "o…", "op…m"]);
}

#[test]
fn a_sparkline_tells_a_gap_from_nothing_and_little_from_nothing() {
    assert_eq!(figure::sparkline(&[None, Some(0.0), Some(0.1), Some(50.0), Some(100.0)]), " ▁▂▄█");
    assert_eq!(figure::chart(&[Some(0.0), Some(50.0), Some(100.0)], 2), ["  █", "▁██"]);
    assert_eq!(figure::sparkline(&[Some(0.0), Some(0.0)]), "▁▁");
}
