//! A batch of 2,000 calls beside a product that answers people. The batch is a share of its own, in the
//! background: it takes what the product leaves, and the product never waits for it.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sluice_examples::{Answer, BoxError, Vendor, sluice_with_shares};
use sluice_sdk::{Client, Dimension, Outcome, Request, RetryReason};
use tokio::time::{MissedTickBehavior, interval};

const RPM: Dimension = Dimension::constant("acme#rpm");
const TPM: Dimension = Dimension::constant("acme#tpm");

async fn summarize(sluice: &Client, vendor: &Vendor, text: &str) -> Result<Answer, BoxError> {
    // The tokens that this vendor counts. A real one is reserved the prompt and `max_tokens`, or an estimate.
    let request = Request::from([RPM, TPM]).cost(TPM, text.len() + 20).share("search/batch");
    let slot = sluice.slot(request).max_wait(Duration::from_secs(3_600)).retry(5);
    slot.run(async |slot| {
        let (parts, answer) = vendor.ask(text).await?.into_parts();
        slot.reply(&parts, (TPM, answer.used)).await?;
        if parts.status.is_success() { Ok(answer) } else { Err("refused".into()) }
    })
    .await
}

/// One text that fails does not end the batch.
async fn batch(sluice: &Client, vendor: &Vendor, texts: Vec<String>) -> Vec<Result<Answer, BoxError>> {
    stream::iter(texts)
        .map(async |text| summarize(sluice, vendor, &text).await)
        .buffer_unordered(200)
        .collect()
        .await
}

/// What people ask the product, 20 times a second while the batch runs. Returns how many calls started at
/// once, how many did not, and how many met a cool-down: the vendor refuses a call now and then, and asks
/// everybody for a pause.
async fn people(sluice: &Client, vendor: &Vendor) -> Result<[usize; 3], BoxError> {
    let [mut at_once, mut late, mut paused] = [0, 0, 0];
    let mut questions = interval(Duration::from_millis(50));
    questions.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for at in 0..60 {
        questions.tick().await;
        let text = format!("question number {at}");
        match sluice.acquire(Request::from([RPM, TPM]).cost(TPM, text.len() + 20).share("search")).await? {
            Outcome::Granted(mut grant) => {
                let (parts, answer) = vendor.ask(&text).await?.into_parts();
                grant.reply(&parts, (TPM, answer.used)).await?;
                grant.release().await?;
                at_once += 1;
            }
            Outcome::RetryIn(retry) if retry.reason() == RetryReason::CoolingDown => paused += 1,
            Outcome::RetryIn(_) => late += 1,
        }
    }
    Ok([at_once, late, paused])
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the result of the example")]
async fn main() -> Result<(), BoxError> {
    // As `[bucket.shares]` in a file of limits: search has half of each limit, its batch a tenth, last of
    // all.
    let shares = [("search", "0.5", false), ("search/batch", "0.1", true)];
    let second = Duration::from_secs(1);
    let vendor = Vendor::new(second, 400, 20_000);
    let sluice = sluice_with_shares(second, (RPM, 400), (TPM, 20_000), &shares).await?;
    let texts = (0..2_000).map(|at| format!("text number {at}")).collect();
    let (answers, asked) = tokio::join!(batch(&sluice, &vendor, texts), people(&sluice, &vendor));
    sluice.close(Duration::from_secs(5)).await;
    let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?.len();
    let [at_once, late, paused] = asked?;
    let refused = vendor.refused().await;
    println!(
        "{answers} answers of the batch, {} refused above the limits, {} by chance",
        refused.above, refused.by_chance
    );
    println!(
        "{at_once} questions of people started at once, {late} did not, {paused} met a cool-down of the vendor"
    );
    assert_eq!((answers, refused.above, at_once + paused, late), (2_000, 0, 60, 0));
    assert!(at_once > 0);
    Ok(())
}
