//! The conditions of shares of rates, as the model `shares` has them.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_core::{
    Amount, Bucket, Change, Claim, Cost, DeclaredShare, Factor, Field, Lender, Limit, LimitType, Operand,
    Plan, Planned, Rate, RatePlanner, RateReceipt, Row, ShareName, Split, Starts, Take, Timestamp, Update,
};

use super::{NOT_BLOCKED, NOW, bucket};

/// Attributes of a row, or of an entry of a map.
struct Fields(BTreeMap<&'static str, String>);

impl Row for Fields {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        let text = self.0.get(name)?;
        Some(if name == "limit_type" { Field::Text(text) } else { Field::Number(text) })
    }
}

/// A row with the share `search`.
struct Shared(Fields, Fields);

impl Row for Shared {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        if name == "shares" { Some(Field::Other) } else { self.0.field(name) }
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        assert_eq!(name, "shares");
        visit("search", Some(&self.1));
        true
    }
}

fn search() -> ShareName {
    ShareName::new("search").unwrap()
}

/// Two lines of ten tokens, a token a second each, with so many tokens at anchors that are two seconds old.
fn lines(common: i32, share: i32) -> Bucket {
    let anchor = (NOW.micros() / 1_000_000 - 2).to_string();
    let text = |text: &str| text.to_owned();
    let row = [
        ("capacity", text("10")),
        ("tokens", common.to_string()),
        ("refill_rate", text("1")),
        ("last_refill_at", anchor.clone()),
        ("cost_per_call", text("1")),
        ("limit_type", text("requests")),
        ("version", text("0")),
    ];
    let line =
        [("c", text("10")), ("t", share.to_string()), ("r", text("1")), ("a", anchor), ("f", text("3"))];
    Bucket::read(bucket(2).dimension(), &Shared(Fields(row.into()), Fields(line.into()))).unwrap()
}

fn of_search(bucket: &Bucket) -> Bucket {
    bucket.clone().seen_from(Some(&search()))
}

fn take(tokens: i32) -> Take {
    Take { cost: Cost::new(Amount::from_tokens(tokens)).unwrap(), now: NOW, patience: Duration::ZERO }
}

fn planned(planner: RatePlanner<'_>, take: Take) -> Planned {
    match planner.plan(take) {
        Plan::Write(planned) => planned,
        other => panic!("{other:?}"),
    }
}

fn condition(update: &Update) -> &str {
    &update.statement.condition
}

fn number<'a>(update: &'a Update, placeholder: &str) -> &'a str {
    let (_, value) = update.values.iter().find(|(name, _)| *name == placeholder).unwrap();
    let Operand::Number(number) = value else { panic!("{value:?}") };
    number
}

/// What the model's `Line::take` asks of the line that pays, as the row names it.
fn asked(path: &str) -> [String; 2] {
    let as_read = format!("{path}#last_refill_at = :read_anchor");
    [
        format!("{as_read} AND {path}#tokens >= :lowest AND {path}#tokens <= :brim AND {NOT_BLOCKED}"),
        format!("{as_read} AND {path}#tokens > :brim AND {NOT_BLOCKED}"),
    ]
}

const OF_SHARE: &str = "#shares.#share.";

#[test]
fn a_take_asks_the_own_line_for_what_a_take_of_a_bucket_asks() {
    let bucket = lines(5, 5);
    for (line, path) in [(bucket.clone(), ""), (of_search(&bucket), OF_SHARE)] {
        let [spend, _] = asked(path);
        let now = planned(RatePlanner::new(&line), take(6));
        assert_eq!(condition(&now.update), spend);
        // 5 tokens at the anchor and 2 since: k - x, and C - x.
        assert_eq!((number(&now.update, ":lowest"), number(&now.update, ":brim")), ("4", "8"));
        let booked = Take { patience: Duration::from_secs(4), ..take(9) };
        let booked = planned(RatePlanner::new(&line), booked);
        assert_eq!(condition(&booked.update), spend);
        assert_eq!(number(&booked.update, ":lowest"), "3", "k - x - patience * r");
    }
    let full = lines(9, 9);
    for (line, path) in [(full.clone(), ""), (of_search(&full), OF_SHARE)] {
        assert_eq!(condition(&planned(RatePlanner::new(&line), take(6)).update), asked(path)[1]);
    }
}

#[test]
fn who_borrows_asks_the_lender_for_the_floor_too_and_for_nothing_of_the_own_line() {
    let bucket = lines(0, 5);
    let lender = bucket.lenders(Cost::ONE, NOW).remove(0);
    assert_eq!((lender.line().share(), lender.floor()), (Some(&search()), Amount::from_tokens(3)));
    let borrows = borrowed(&lender, 2).unwrap();
    assert_eq!(condition(&borrows.update), asked(OF_SHARE)[0]);
    assert_eq!(number(&borrows.update, ":lowest"), "3", "k + floor - x");
    let is_planned = [4, 5].map(|tokens| borrowed(&lender, tokens).is_some());
    assert_eq!(is_planned, [true, false], "7 are there, and 3 stay");
    let full = lines(0, 9);
    let lender = full.lenders(Cost::ONE, NOW).remove(0);
    assert_eq!(condition(&borrowed(&lender, 7).unwrap().update), asked(OF_SHARE)[1]);
    assert!(borrowed(&lender, 8).is_none(), "C - k >= floor, though 11 would be there without a brim");
}

/// The model has no counts. Without this condition, the path of a share that was removed would make the write
/// invalid.
#[test]
fn who_borrows_for_a_share_asks_that_the_row_still_has_the_share_where_it_counts() {
    let lender = of_search(&lines(5, 0)).lenders(Cost::new(Amount::from_tokens(4)).unwrap(), NOW).remove(0);
    let borrows = borrowed(&lender, 4).unwrap();
    let of_lender = &asked("")[0];
    assert_eq!(condition(&borrows.update), format!("{of_lender} AND attribute_exists(#shares.#borrower)"));
    assert_eq!(borrows.update.statement.names.get("#borrower"), Some("search"));
    let counts = ", #shares.#borrower.#borrowed = if_not_exists(#shares.#borrower.#borrowed, :0) + :lent";
    assert!(borrows.update.statement.update.ends_with(counts), "{}", borrows.update.statement.update);
    assert_eq!(number(&borrows.update, ":lent"), "4");
}

/// What a caller borrows, as lanes plan it.
fn borrowed(lender: &Lender, tokens: i32) -> Option<Planned> {
    let claim = Claim { cost: take(tokens).cost, patience: Duration::ZERO };
    RatePlanner::borrowing(lender).plan_batch(&[claim], NOW, Starts::InReply, Amount::ZERO).write
}

#[test]
fn what_comes_back_asks_the_line_that_it_was_taken_from() {
    let bucket = lines(5, 5);
    for (line, path) in [(bucket.clone(), ""), (of_search(&bucket), OF_SHARE)] {
        let after = planned(RatePlanner::new(&line), take(2)).after;
        let back = RateReceipt::new(after, take(2).cost).give_back(NOW).unwrap();
        let returned =
            format!("(attribute_not_exists({path}#returned) OR {path}#returned <= :most_returned)");
        let lots = format!("(attribute_not_exists({path}#lots) OR {path}#lots = :read_lots)");
        let expected = format!("{path}#last_refill_at = :read_anchor AND {returned} AND {lots}");
        assert_eq!(condition(&back), expected);
    }
}

/// Not in the model. What the condition of each line stops is what it stops of one line: the line filled up
/// or moved, and its reserve would swallow what is taken.
#[test]
fn what_lowers_all_lines_asks_each_of_them() {
    let half: Factor = "0.5".parse().unwrap();
    let lowered = |bucket: &Bucket| RatePlanner::new(bucket).penalize(half, None, NOW).unwrap();
    let share = "#shares.#s1.#a = :l1 AND #shares.#s1.#t";
    assert_eq!(
        condition(&lowered(&lines(5, 5))),
        format!("#last_refill_at = :l0 AND #tokens <= :h0 AND {share} <= :h1")
    );
    assert_eq!(
        condition(&lowered(&lines(9, 5))),
        format!("#last_refill_at = :l0 AND #tokens > :h0 AND {share} <= :h1")
    );
    assert_eq!(
        condition(&lowered(&lines(5, 9))),
        format!("#last_refill_at = :l0 AND #tokens <= :h0 AND {share} > :h1")
    );
    assert_eq!(
        condition(&lowered(&lines(-9, 5))),
        "#shares.#s0.#a = :l0 AND #shares.#s0.#t <= :h0",
        "a line without a level stays"
    );
}

/// The model asks for the lines as they were read; the code asks more: that nothing was written since, and
/// the row is the same.
#[test]
fn what_changes_the_lines_asks_that_nothing_was_written_since() {
    let limit = Limit::rate(
        LimitType::Requests,
        Amount::from_tokens(20),
        Rate::per(Amount::from_tokens(2), Duration::from_secs(1)).unwrap(),
        Cost::ONE,
    );
    let limit = limit.unwrap();
    let share = |part: &str| DeclaredShare {
        name: search(),
        part: part.parse().unwrap(),
        floor: None,
        background: false,
    };
    let as_read = "#version = :read_version AND #last_refill_at = :read_anchor";
    let split = |bucket: &Bucket, shares: &[DeclaredShare]| {
        let to = Split::new(limit, shares).unwrap();
        condition(&Change::split(bucket, &to, NOW).unwrap()).to_owned()
    };
    let whole = Bucket::full(bucket(2).dimension().clone(), limit, Timestamp::default());
    assert_eq!(split(&whole, &[share("0.5")]), as_read, "declared");
    assert_eq!(split(&lines(5, 5), &[share("0.2")]), as_read, "changed");
    assert_eq!(split(&lines(5, 5), &[]), as_read, "removed");
    assert_eq!(condition(&Change::refill_lines(&lines(5, 5), Amount::from_tokens(9), NOW)), as_read);
}
