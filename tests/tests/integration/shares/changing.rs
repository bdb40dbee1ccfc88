//! Ten minutes in which demand changes from nothing to thirty times a share and back.

use std::fmt::Write as _;
use std::time::Duration;

use super::busy::{ALLOWED, BESIDE_COMMON, Busy, CHANGING, Outcome, Product, SHARPER};

/// A guarantee is judged in each window of this length, too, that begins this long after a phase or later.
const WINDOW: Duration = Duration::from_secs(10);
const UNTIL_ALL_WAIT: Duration = Duration::from_secs(5);

/// What a run of products with changing demand shows.
struct Shown {
    writes: f64,
    /// The smallest part of its guarantee that a product had in a phase in which it asked for twice it or
    /// more.
    worst: f64,
    /// The same of ten seconds in such a phase.
    worst_window: f64,
    /// The smallest part of what it asked for, up to its guarantee, that a product got in a phase in which it
    /// asked for about its guarantee.
    got_of_asked: f64,
    /// The smallest part of the limit that was used in a phase in which 1.2 times the limit or more was asked
    /// for.
    used: f64,
    /// The same of the phases in which one product alone asks: it has to find first that the others' lines
    /// lend.
    used_by_one: f64,
    /// The smallest part of a process that always had callers, of what each of its share would have in equal
    /// parts.
    least_part: f64,
}

/// Runs products whose demand changes: no window of the vendor is exceeded, each product gets its guarantee,
/// and the checker of histories finds nothing.
#[allow(clippy::cast_precision_loss, clippy::print_stdout)]
async fn changing(
    products: &'static [Product],
    (burst, processes): (i32, usize),
    phase: Duration,
    seed: u64,
) -> Shown {
    let busy = Busy { products, burst, processes, phase, patience: Duration::from_secs(5), seed };
    let result = busy.run().await;
    let length = phase.as_secs_f64();
    let mut text = String::new();
    let writes = result.paid.writes();
    let none = f64::INFINITY;
    let [worst, worst_window, got_of_asked, used, used_by_one, least_part] = [none; 6];
    let mut shown = Shown { writes, worst, worst_window, got_of_asked, used, used_by_one, least_part };
    for number in 0..products[0].factors.len() {
        write!(text, "phase {number}:").unwrap();
        let mut demand = 0.0;
        for (of, Product { share, part, factors, .. }) in products.iter().enumerate() {
            let promised = part * ALLOWED * length;
            let (got, asked) =
                (result.in_phase(Some(of), number, phase) as f64, result.asked[of][number] as f64);
            demand += factors[number] * part;
            if factors[number] >= 5.0 {
                let [least, most] = result.of_each_process(of, number, phase, processes / products.len());
                write!(text, " ({least} to {most} each)").unwrap();
                let part = least as f64 * (processes / products.len()) as f64 / got;
                shown.least_part = shown.least_part.min(part);
            }
            write!(text, "  {share} asked {asked:.0} got {got:.0} of {promised:.0}").unwrap();
            if factors[number] >= 2.0 {
                shown.worst = shown.worst.min((got + 1.0) / promised);
                let began = phase * u32::try_from(number).unwrap();
                let fewest = result.fewest_in(of, [began + UNTIL_ALL_WAIT, began + phase], WINDOW);
                let promised = part * ALLOWED * WINDOW.as_secs_f64();
                let of_window = fewest.map_or(none, |fewest| (fewest as f64 + 1.0) / promised);
                shown.worst_window = shown.worst_window.min(of_window);
            } else if factors[number] >= 1.0 {
                shown.got_of_asked = shown.got_of_asked.min((got + 1.0) / asked.min(promised));
            }
        }
        let all = result.in_phase(None, number, phase) as f64 / (ALLOWED * length);
        writeln!(text, "  used {:.1} %", all * 100.0).unwrap();
        match products.iter().filter(|product| product.factors[number] > 0.0).count() {
            _ if demand < 1.2 => {}
            1 => shown.used_by_one = shown.used_by_one.min(all),
            _ => shown.used = shown.used.min(all),
        }
    }
    println!("{text}{processes} processes, burst {burst}, seed {seed}: {}", told(&shown, &result));
    judge(&shown, products, phase);
    // These clocks are exact, and a start is in whole microseconds.
    assert!(result.burst() <= f64::from(burst) + 0.1, "the vendor saw a burst of {}", result.burst());
    result.kept();
    shown
}

/// The figures of a run, and what the checker of histories says of each share.
#[allow(clippy::cast_precision_loss)]
fn told(shown: &Shown, result: &Outcome) -> String {
    let of = |part: f64| if part.is_finite() { format!("{:.1} %", part * 100.0) } else { "none".to_owned() };
    let mut text = format!(
        "worst guarantee {}, of ten seconds {}, asked for within it and got {}, least used {} (by one product \
         alone {}), a call: {}, burst seen {:.1}, a process had at least {} of an equal part\n",
        of(shown.worst),
        of(shown.worst_window),
        of(shown.got_of_asked),
        of(shown.used),
        of(shown.used_by_one),
        result.paid,
        result.burst(),
        of(shown.least_part)
    );
    for of in &result.verdict.buckets[0].shares {
        let worst = of.worst.map_or(100.0, |worst| 100.0 * worst.granted as f64 / worst.guaranteed as f64);
        let (share, grants, borrowed) = (&of.share, of.grants, of.borrowed / 1_000_000);
        writeln!(
            text,
            "history: {share} had {grants} calls, {borrowed} borrowed, at worst {worst:.1} % of its guarantee \
             while it waited"
        )
        .unwrap();
    }
    text
}

/// Each product got its guarantee.
fn judge(shown: &Shown, products: &[Product], phase: Duration) {
    assert!(shown.worst >= 0.98, "a product got {} of what it was promised", shown.worst);
    // Where all lines are asked for, no loan makes up for calls that are lost with replies (two of fifty),
    // nor for callers that leave because many come at once.
    let has_loans = products.iter().all(|product| product.named().is_some());
    let (least, least_asked) = if has_loans { (0.98, 0.98) } else { (0.95, 0.96) };
    assert!(shown.worst_window >= least, "in ten seconds, it got {}", shown.worst_window);
    assert_eq!(shown.worst_window.is_finite(), phase >= UNTIL_ALL_WAIT + WINDOW);
    let got = shown.got_of_asked;
    assert!(got >= least_asked, "a product got {got} of what it asked for within its guarantee");
}

/// In phases this short, what runs over while the demand changes is a part of each.
#[tokio::test(start_paused = true)]
async fn each_product_gets_its_guarantee_and_the_rest_is_used() {
    for products in [&CHANGING, &SHARPER] {
        let shown = changing(products, (50, 18), Duration::from_secs(8), 7).await;
        assert!(shown.writes <= 1.35 && shown.used >= 0.97, "{} writes, {} used", shown.writes, shown.used);
        assert!(shown.used_by_one >= 0.95, "one product alone used {}", shown.used_by_one);
    }
}

/// Draws of demand and faults: one alone may be lucky.
const SEEDS: [u64; 4] = [7, 1, 2, 3];

/// Runs ten minutes with each seed.
async fn ten_minutes(
    products: &'static [Product],
    of: (i32, usize),
    [most_writes, least_used, least_part]: [f64; 3],
) {
    for seed in SEEDS {
        let shown = changing(products, of, Duration::from_secs(60), seed).await;
        assert!(shown.writes <= most_writes, "{} writes a call", shown.writes);
        assert!(shown.used >= least_used, "{} of the limit was used", shown.used);
        // Above 99 % in most draws: what is lost while the demand changes, and with replies, is about that.
        let least_by_one = least_used - 0.005;
        assert!(shown.used_by_one >= least_by_one, "one product alone used {}", shown.used_by_one);
        let part = shown.least_part;
        assert!(part >= least_part, "luck must not last: a process had {part} of an equal part");
    }
}

/// `task test:long -- ten_minutes` prints each phase.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
async fn ten_minutes_with_18_processes() {
    ten_minutes(&CHANGING, (50, 18), [1.25, 0.99, 0.5]).await;
    ten_minutes(&SHARPER, (50, 18), [1.25, 0.99, 0.4]).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
async fn ten_minutes_with_72_processes() {
    ten_minutes(&CHANGING, (50, 72), [1.35, 0.99, 0.4]).await;
    ten_minutes(&SHARPER, (50, 72), [1.35, 0.99, 0.25]).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
async fn ten_minutes_with_a_burst_below_half_a_second() {
    ten_minutes(&CHANGING, (20, 18), [1.3, 0.97, 0.5]).await;
    ten_minutes(&SHARPER, (20, 18), [1.3, 0.97, 0.5]).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
async fn ten_minutes_with_a_burst_below_half_a_second_and_72_processes() {
    ten_minutes(&CHANGING, (20, 72), [1.5, 0.98, 0.3]).await;
    ten_minutes(&SHARPER, (20, 72), [1.5, 0.98, 0.25]).await;
}

/// What callers have that name no share is kept for them as well.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: task test:long"]
async fn ten_minutes_beside_callers_that_name_no_share() {
    ten_minutes(&BESIDE_COMMON, (50, 24), [1.3, 0.99, 0.5]).await;
}
