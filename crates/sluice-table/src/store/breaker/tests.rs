use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn breaker() -> Breaker {
    Breaker::new("limits", 3 * SECOND, SECOND)
}

fn cause() -> String {
    String::from("the connection was refused")
}

async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// An attempt that fails at once.
fn fails(breaker: &Breaker) {
    let now = Instant::now();
    breaker.sent(now);
    breaker.failed(now, SECOND, cause());
}

#[tokio::test(start_paused = true)]
async fn fast_failures_for_nine_tenths_of_the_time_to_an_answer_open_it_and_a_reply_closes_it() {
    let breaker = breaker();
    for _ in 0..27 {
        fails(&breaker);
        assert!(!breaker.is_out());
        pass(100).await;
    }
    fails(&breaker);
    assert!(breaker.is_out());
    assert!(breaker.error("GetItem", false).to_string().contains("nothing for 2.7 s"));
    let returns = breaker.returns();
    assert_eq!(breaker.since_return(), None);
    breaker.answered();
    assert!(!breaker.is_out());
    breaker.returned(returns).await;
    pass(100).await;
    assert!(breaker.since_return().is_some_and(|since| since >= Duration::from_millis(100)));
}

/// The attempt at whose end DynamoDB counts as out may not have failed by itself yet.
#[tokio::test(start_paused = true)]
async fn an_outage_is_told_with_the_failure_that_was_seen_and_not_with_silence() {
    let (silent, breaker) = (|| String::from("no answer to any request"), breaker());
    fails(&breaker);
    for millis in [1_300, 1_300, 100] {
        pass(millis).await;
        breaker.sent(Instant::now());
    }
    assert!(breaker.is_given_up(Instant::now(), silent));
    assert!(breaker.error("GetItem", false).to_string().contains("the connection was refused"));
    breaker.answered();
    // A later silence says nothing of that.
    let sent = Instant::now();
    breaker.sent(sent);
    pass(1_000).await;
    breaker.unanswered(sent, SECOND, silent);
    for millis in [1_000, 700] {
        breaker.sent(Instant::now());
        pass(millis).await;
    }
    assert!(breaker.is_given_up(Instant::now(), silent));
    assert!(breaker.error("GetItem", false).to_string().contains("no answer to any request"));
}

#[tokio::test(start_paused = true)]
async fn one_lost_reply_among_replies_does_not_open_it() {
    let breaker = breaker();
    for _ in 0..100 {
        fails(&breaker);
        pass(100).await;
        breaker.sent(Instant::now());
        breaker.answered();
    }
    assert!(!breaker.is_out());
}

/// A caller that reads for 50 ms at most, and goes on without the reading.
#[tokio::test(start_paused = true)]
async fn attempts_whose_callers_go_away_do_not_open_it() {
    let breaker = breaker();
    for _ in 0..100 {
        breaker.sent(Instant::now());
        pass(100).await;
        assert!(!breaker.is_given_up(Instant::now(), cause));
    }
    fails(&breaker);
    assert!(!breaker.is_out());
    breaker.answered();
    // Nor does an attempt that was sent long before the last reply.
    let sent = Instant::now();
    breaker.sent(sent);
    pass(900).await;
    breaker.answered();
    pass(100).await;
    breaker.failed(sent, SECOND, cause());
    pass(2_500).await;
    fails(&breaker);
    assert!(!breaker.is_out());
}

#[tokio::test(start_paused = true)]
async fn failures_with_long_pauses_between_them_do_not_open_it() {
    let breaker = breaker();
    for _ in 0..10 {
        fails(&breaker);
        pass(1_600).await;
    }
    assert!(!breaker.is_out());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_waits_as_long_again() {
    let breaker = breaker();
    let sent = Instant::now();
    fails(&breaker);
    breaker.sent(sent);
    let due = sent + Duration::from_millis(2_700);
    assert_eq!(breaker.waits_until(sent + 9 * SECOND), due);
    pass(60_000).await;
    assert!(!breaker.is_given_up(Instant::now(), cause), "the process stood still");
    assert_eq!(
        breaker.waits_until(Instant::now() + 9 * SECOND),
        Instant::now() + Duration::from_millis(2_700)
    );
    let began = Instant::now();
    breaker.sent(began);
    pass(60_000).await;
    breaker.failed(began, SECOND, cause());
    assert!(!breaker.is_out());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_the_probe_only_if_no_probe_was_sent_for_two_seconds() {
    let breaker = breaker();
    breaker.sent(Instant::now());
    pass(2_000).await;
    assert!(!breaker.may_probe(Instant::now()));
    pass(1).await;
    assert!(breaker.may_probe(Instant::now()));
    assert!(!breaker.may_probe(Instant::now()), "one of them");
}
