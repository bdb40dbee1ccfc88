use std::collections::BTreeMap;

use sluice_core::{Cost, Dimension, Field, Limit, Operand, Row, schema};
use tokio::time::advance;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const ONE: Amount = Amount::from_tokens(1);

/// A look at a reading of this moment.
fn fresh() -> Look {
    Look { began: Instant::now(), age: Duration::ZERO }
}

struct Map(BTreeMap<&'static str, Operand>);

impl Row for Map {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        match self.0.get(name)? {
            Operand::Text(text) => Some(Field::Text(text)),
            Operand::Number(text) => Some(Field::Number(text)),
            Operand::Map(_) => Some(Field::Other),
        }
    }
}

/// A bucket of ten slots, of which `free` are free and `served` numbers have been served; whether callers
/// wait.
fn bucket(free: i32, served: i64, waited: bool) -> Bucket {
    bucket_of(10, free, served, waited)
}

fn bucket_of(slots: i32, free: i32, served: i64, waited: bool) -> Bucket {
    let dimension = Dimension::new("a#concurrent").unwrap();
    let limit = Limit::concurrent(Amount::from_tokens(slots), Cost::ONE).unwrap();
    let mut row: BTreeMap<_, _> =
        Bucket::full(dimension.clone(), limit, NOW).create().item.into_iter().collect();
    row.insert(schema::TOKENS, Operand::Number(free.to_string()));
    row.insert(schema::SERVED, Operand::Number(served.to_string()));
    row.insert(schema::ADMITTED, Operand::Number(served.to_string()));
    if waited {
        row.insert(schema::WAITED_UNTIL, Operand::Number(NOW.after(Duration::from_secs(1)).to_string()));
    }
    Bucket::read(&dimension, &Map(row)).unwrap()
}

/// As many callers as numbers.
fn with(numbers: impl IntoIterator<Item = i64>) -> Turns {
    with_callers(numbers, usize::MAX)
}

fn with_callers(numbers: impl IntoIterator<Item = i64>, waiting: usize) -> Turns {
    let turns = Turns::default();
    let mut state = turns.0.lock();
    state.numbers = numbers.into_iter().collect();
    state.waiting = waiting.min(state.numbers.len());
    drop(state);
    turns
}

#[tokio::test(start_paused = true)]
async fn callers_take_slots_in_the_order_of_their_numbers() {
    let turns = with([12, 13, 20]);
    let next = |free, served| turns.are_next(&bucket(free, served, true), fresh(), 3, ONE, NOW);
    assert_eq!(
        [next(0, 12), next(1, 11), next(1, 12), next(2, 12), next(8, 12), next(9, 12)],
        [0, 0, 1, 2, 2, 3]
    );
    assert_eq!(next(0, 13), 1, "a number that was passed over has its turn at once");
}

#[tokio::test(start_paused = true)]
async fn who_has_no_number_comes_after_those_that_wait_and_at_once_where_nobody_waits() {
    let turns = with([]);
    assert_eq!(turns.are_next(&bucket(5, 0, true), fresh(), 1, ONE, NOW), 0);
    assert_eq!(turns.are_next(&bucket(5, 0, false), fresh(), 1, ONE, NOW), 1);
    // One that could not draw takes as before.
    turns.have_drawn(Ok(None), 1);
    assert_eq!(turns.are_next(&bucket(5, 0, true), fresh(), 1, ONE, NOW), 1);
    advance(WITHOUT_NUMBERS + Duration::from_millis(1)).await;
    assert_eq!(turns.are_next(&bucket(5, 0, true), fresh(), 1, ONE, NOW), 0);
}

#[tokio::test(start_paused = true)]
async fn a_draw_that_failed_a_few_times_is_no_reason_to_pass_others() {
    let turns = with([]);
    let failed = || StoreError::Contended { operation: "UpdateItem", message: String::new() };
    for _ in 1..MOST_FAILED {
        assert_eq!(turns.begin_to_draw(1), Some(1));
        turns.have_drawn(Err(failed()), 1);
        assert_eq!(turns.begin_to_draw(1), None, "not at once again");
        assert_eq!(turns.are_next(&bucket(5, 0, true), fresh(), 1, ONE, NOW), 0);
        advance(DRAW_AGAIN).await;
    }
    turns.have_drawn(Err(failed()), 1);
    assert_eq!(
        turns.are_next(&bucket(5, 0, true), fresh(), 1, ONE, NOW),
        1,
        "and in the end it takes without"
    );
}

#[tokio::test(start_paused = true)]
async fn slots_that_nobody_takes_are_for_twice_as_many_after_each_grace_and_only_while_every_look_shows_them()
{
    let turns = with([5]);
    let idle = bucket(1, 0, true);
    let look = || turns.are_next(&idle, fresh(), 1, ONE, NOW);
    assert_eq!(look(), 0);
    for _ in 0..2 {
        advance(GRACE).await;
        assert_eq!(look(), 0, "for two, and for four");
    }
    advance(GRACE).await;
    assert_eq!(look(), 1, "for eight");
    let over = Serves { numbers: 6, passes_over: true };
    assert_eq!(turns.serves(&idle, 0, ONE, NOW), over, "and the five before it are passed over");
    assert_eq!(turns.are_next(&bucket(1, 1, true), fresh(), 1, ONE, NOW), 0, "somebody was served");
    // A process whose turn is far looks rarely. Nobody was served between its looks, so the slots were free.
    advance(GRACE * 10).await;
    assert_eq!(turns.are_next(&bucket(1, 1, true), fresh(), 1, ONE, NOW), 1);
    assert_eq!(with([i64::MAX - 1]).0.lock().reach(&bucket(1, 0, true), 1), 1);
}

#[tokio::test(start_paused = true)]
async fn numbers_that_the_first_of_a_write_passes_over_count_once() {
    let turns = with(1_000..1_004);
    let idle = bucket(4, 0, true);
    while turns.are_next(&idle, fresh(), 4, ONE, NOW) < 4 {
        advance(GRACE).await;
    }
    assert_eq!([0, 1, 2, 3].map(|at| turns.serves(&idle, at, ONE, NOW).numbers), [1_001, 1, 1, 1]);
}

/// The row was made anew, and the load row was not.
#[tokio::test(start_paused = true)]
async fn counts_that_are_far_apart_are_no_reason_to_wait_for_ever() {
    let turns = with([1_000_000_000_000]);
    let idle = bucket(3, 0, true);
    for _ in 0..MOST_WIDENED {
        assert_eq!(turns.are_next(&idle, fresh(), 1, ONE, NOW), 0);
        advance(GRACE).await;
    }
    assert_eq!(turns.are_next(&idle, fresh(), 1, ONE, NOW), 1);
    assert_eq!(turns.serves(&idle, 0, ONE, NOW).numbers, u32::MAX);
}

/// Both rows were made anew, and a crowd that came later keeps all slots busy.
#[tokio::test(start_paused = true)]
async fn numbers_of_a_count_that_is_gone_are_forgotten() {
    let turns = with([50_000]);
    turns.are_next(&bucket(0, 49_000, true), fresh(), 1, ONE, NOW);
    let busy = |served| {
        assert_eq!(turns.are_next(&bucket(0, served, true), fresh(), 1, ONE, NOW), 0);
        turns.begin_to_draw(1)
    };
    assert_eq!(busy(3), None);
    advance(FALLEN_FOR / 2).await;
    assert_eq!(busy(49_100), None, "that reading was old");
    assert_eq!(busy(5), None);
    advance(FALLEN_FOR).await;
    assert_eq!(busy(600), Some(1));
    turns.have_drawn(Ok(Some(660)), 1);
    assert_eq!(turns.are_next(&bucket(1, 659, true), fresh(), 1, ONE, NOW), 1);
}

/// The bucket's row was made again before this process first looked, and the load row after it had drawn.
#[tokio::test(start_paused = true)]
async fn a_draw_below_the_numbers_that_are_held_replaces_them() {
    let turns = with([50_001]);
    turns.have_drawn(Ok(Some(9)), 2);
    assert_eq!(turns.0.lock().numbers, [7, 8]);
    turns.have_drawn(Ok(Some(10)), 1);
    assert_eq!(turns.0.lock().numbers, [7, 8, 9]);
}

#[tokio::test(start_paused = true)]
async fn numbers_of_callers_that_left_are_for_those_that_come_until_the_next_grant_counts_them() {
    let turns = with([3, 4, 5]);
    assert_eq!(turns.are_next(&bucket(0, 3, true), fresh(), 1, ONE, NOW), 0);
    assert_eq!((turns.begin_to_draw(2), turns.begin_to_draw(4)), (None, Some(1)), "two have left");
    turns.end_draw();
    let row = bucket(1, 3, true);
    assert_eq!(turns.are_next(&row, fresh(), 1, ONE, NOW), 1);
    // Nobody else counts them: no condition is needed.
    assert_eq!(turns.serves(&row, 0, ONE, NOW), Serves { numbers: 3, passes_over: false });
    assert_eq!(with_callers([3, 7, 8], 1).0.lock().left_over(8), 1, "others have passed over 7");
    turns.were_served(1);
    assert_eq!(turns.begin_to_draw(2), Some(2), "no number is left over");
    turns.have_drawn(Ok(Some(9)), 2);
    assert_eq!(turns.0.lock().numbers, [7, 8]);
    assert_eq!(turns.are_next(&bucket(2, 7, true), fresh(), 2, ONE, NOW), 2);
    assert_eq!(turns.serves(&bucket(2, 7, true), 1, ONE, NOW).numbers, 1, "they count once");
}

/// Callers that come after an hour are not before those that wait.
#[tokio::test(start_paused = true)]
async fn numbers_that_were_passed_over_while_nobody_waited_here_are_no_turn() {
    let turns = with([3, 4, 900]);
    turns.are_next(&bucket(0, 3, true), fresh(), 3, ONE, NOW);
    advance(AWAY).await;
    assert_eq!(turns.are_next(&bucket(2, 800, true), fresh(), 3, ONE, NOW), 0);
    assert_eq!(turns.0.lock().numbers, [900]);
}

/// Slots that are held long come free together: all that take one read the same count.
#[tokio::test(start_paused = true)]
async fn many_slots_that_come_free_in_one_moment_do_not_push_the_count_far_ahead() {
    fastrand::seed(1);
    let rooms = 100_i64;
    let row = bucket_of(100, 100, 1_000, true);
    let moved: i64 = (1_000..1_000 + rooms)
        .map(|number| i64::from(with_callers([number], 1).serves(&row, 0, ONE, NOW).numbers))
        .sum();
    assert!((rooms..=rooms * 5 / 4).contains(&moved), "{rooms} grants move the count by {moved}");
}

/// A crowd of 50 in which each comes again at once, and a count that is wrong at the start.
#[tokio::test(start_paused = true)]
async fn a_count_that_is_wrong_becomes_right_while_callers_are_served() {
    const WAITING: i64 = 50;
    for (nobodys, twice) in [(0, 0), (2, 0), (20, 0), (0, 5), (0, 40)] {
        fastrand::seed(1);
        let mut callers: Vec<Turns> = (0..WAITING).map(|number| with([1_000 + nobodys + number])).collect();
        let (mut served, mut drawn) = (1_000 + twice, 1_000 + nobodys + WAITING);
        let mut off = 0;
        for grant in 0..800 {
            let row = loop {
                let row = bucket(3, served, true);
                fastrand::shuffle(&mut callers);
                if let Some(next) =
                    callers.iter().position(|turns| turns.are_next(&row, fresh(), 1, ONE, NOW) == 1)
                {
                    callers.swap(0, next);
                    break row;
                }
                advance(GRACE).await;
            };
            served += i64::from(callers[0].serves(&row, 0, ONE, NOW).numbers);
            callers[0].were_served(1);
            callers[0].have_drawn(Ok(Some(drawn + 1)), 1);
            drawn += 1;
            if grant >= 400 {
                off += drawn - served - WAITING;
            }
        }
        assert!(
            off.abs() <= 400,
            "{nobodys} nobody's, {twice} counted twice: off by {} in the mean",
            off / 400
        );
    }
}

/// The pause until the next look of a process whose first number is far, in milliseconds.
fn next_look(turns: &Turns, served: i64) -> u128 {
    turns.next_look(&bucket(0, served, true), NOW).unwrap().as_millis()
}

/// Looks at a full bucket for `secs`, as often as a process does that waits, while `a_second` are served.
/// Returns how many were served by then.
async fn wait_in_a_crowd(turns: &Turns, served: i64, a_second: i64, secs: u64) -> i64 {
    let (began, end) = (Instant::now(), Duration::from_secs(secs));
    loop {
        let time = began.elapsed();
        let served = served + i64::try_from(time.as_millis()).unwrap() * a_second / 1_000;
        turns.are_next(&bucket(0, served, true), fresh(), 1, ONE, NOW);
        if time == end {
            return served;
        }
        let pause = turns.next_look(&bucket(0, served, true), NOW).unwrap();
        advance(pause.min(end - time)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn looks_are_rare_while_the_turn_is_far_and_follow_the_pace() {
    let turns = with([40]);
    // Twenty a second: slots are held half a second.
    assert_eq!(wait_in_a_crowd(&turns, 0, 20, 1).await, 20);
    let look = |served| next_look(&turns, served);
    assert!((250..=380).contains(&look(20)), "a third of the 950 ms until its turn: {}", look(20));
    assert!((4..=6).contains(&look(39)) && (4..=6).contains(&look(40)), "{} {}", look(39), look(40));
    assert!(with([]).next_look(&bucket(0, 0, true), NOW).is_none());
}

/// Twenty are served a second. The process was away for two seconds, and its first look is at what it knew.
#[tokio::test(start_paused = true)]
async fn what_was_served_in_a_lull_is_no_pace() {
    let turns = with([10_000]);
    let served = wait_in_a_crowd(&turns, 0, 20, 2).await;
    turns.were_served(1);
    advance(Duration::from_secs(2)).await;
    turns.have_drawn(Ok(Some(served + 101)), 1);
    let look = Look { age: Duration::from_secs(2), ..fresh() };
    turns.are_next(&bucket(0, served, true), look, 1, ONE, NOW);
    for after in [5, 25, 50, 270] {
        advance(Duration::from_millis(after)).await;
        turns.are_next(
            &bucket(0, served + 40 + i64::try_from(after).unwrap() / 50, true),
            fresh(),
            1,
            ONE,
            NOW,
        );
        let pause = next_look(&turns, served + 40);
        assert!((390..=610).contains(&pause), "60 before it, at 20 a second: {pause} ms");
    }
}

/// Its last caller gave up, or nobody was served since a vendor asked for a pause: the process does not look.
#[tokio::test(start_paused = true)]
async fn the_pace_is_kept_over_a_lull_in_which_nobody_was_served() {
    let turns = with([10_000]);
    let served = wait_in_a_crowd(&turns, 9_000, 400, 2).await;
    next_look(&turns, served);
    advance(Duration::from_secs(3)).await;
    turns.are_next(&bucket(0, served, true), fresh(), 1, ONE, NOW);
    advance(Duration::from_millis(5)).await;
    turns.are_next(&bucket(0, served + 1, true), fresh(), 1, ONE, NOW);
    let pause = next_look(&turns, 9_940);
    assert!((39..=60).contains(&pause), "a third of 59 at 400 a second: {pause} ms");
}

/// A process looks about each second whether the pause that a vendor asked for is over.
#[tokio::test(start_paused = true)]
async fn the_pace_is_kept_over_a_cool_down() {
    let turns = with([10_000]);
    let served = wait_in_a_crowd(&turns, 9_000, 400, 2).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2_500) {
        turns.rest();
        // It looks when it meant to.
        advance(turns.next_look(&bucket(0, served, true), NOW).unwrap()).await;
    }
    for more in 1..=2 {
        turns.are_next(&bucket(0, served + more, true), fresh(), 1, ONE, NOW);
        advance(Duration::from_millis(5)).await;
    }
    let pause = next_look(&turns, 9_940);
    assert!((39..=60).contains(&pause), "a third of 59 at 400 a second: {pause} ms");
}

/// One call now and then finds a free slot at once.
#[tokio::test(start_paused = true)]
async fn a_pace_that_nobody_measured_for_four_seconds_is_unknown() {
    let turns = with([100_000]);
    let served = wait_in_a_crowd(&turns, 90_000, 400, 2).await;
    for _ in 0..2 {
        turns.were_served(1);
        advance(Duration::from_secs(3)).await;
        turns.are_next(&bucket(5, served, false), fresh(), 1, ONE, NOW);
    }
    turns.have_drawn(Ok(Some(served + 61)), 1);
    advance(Duration::from_millis(50)).await;
    let pause = next_look(&turns, served);
    assert!(pause >= 390, "a pace of 400 a second would make it {} ms: {pause} ms", 59 * 1000 / 400 / 3);
}

/// A read takes 150 ms: each round looks at what was known, and then at the reply.
#[tokio::test(start_paused = true)]
async fn a_slow_read_is_no_lull() {
    let turns = with([10_000]);
    let (read, began) = (Duration::from_millis(150), Instant::now());
    let mut known = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(5) {
        let round = Instant::now();
        let look = |read_at: Instant| Look { began: round, age: read_at.elapsed() };
        turns.are_next(&bucket(0, known.0, true), look(known.1), 1, ONE, NOW);
        advance(read).await;
        known = (i64::try_from(began.elapsed().as_millis()).unwrap() / 50, Instant::now());
        turns.are_next(&bucket(0, known.0, true), look(known.1), 1, ONE, NOW);
        advance(turns.next_look(&bucket(0, 9_940, true), NOW).unwrap()).await;
    }
    let pause = next_look(&turns, 9_940);
    assert!((390..=610).contains(&pause), "60 before it, at 20 a second: {pause} ms");
}
