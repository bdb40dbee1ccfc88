//! Three products read texts aloud at a vendor that limits calls at once. Each call holds a slot; a product
//! that wants more than there are waits its turn.

use std::time::Duration;

use futures_util::future::try_join_all;
use sluice_examples::voices::Voices;
use sluice_examples::{BoxError, table};
use sluice_sdk::core::{Amount, Cost, Limit};
use sluice_sdk::{Client, Dimension};

const SLOTS: Dimension = Dimension::constant("elevenlabs#concurrent");
/// What the plan at the vendor allows.
const PLAN: i32 = 5;

async fn read_aloud(sluice: &Client, voices: &Voices, text: &str) -> Result<Vec<u8>, BoxError> {
    // `retry`: should the vendor refuse a call all the same, the slot goes back, and the call waits and tries
    // again.
    let slot = sluice.slot(SLOTS).max_wait(Duration::from_secs(60)).retry(3);
    slot.run(async |slot| {
        let reply = voices.speak(text).await;
        // Headers say how many calls the vendor sees and allows; a 429 says which of its two reasons it has.
        slot.reply(&reply, ()).await?;
        if reply.status().is_success() { Ok(reply.into_body()) } else { Err("refused".into()) }
    })
    .await
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the result of the example")]
async fn main() -> Result<(), BoxError> {
    let dynamo = table().await?;
    let operator = dynamo.client("sluice");
    operator.ops().apply_limit(&SLOTS, &Limit::concurrent(Amount::from_tokens(PLAN), Cost::ONE)?).await?;
    let voices = Voices::new(PLAN);
    // In production each is a process of its own, with `Client::from_env().await?`.
    let product = async |name: &str| {
        let sluice = dynamo.client_with(Client::builder("sluice").caller(name));
        let texts = (0..40).map(|at| format!("{name}, sentence {at}"));
        let spoken = try_join_all(texts.map(async |text| read_aloud(&sluice, &voices, &text).await)).await?;
        sluice.close(Duration::from_secs(5)).await;
        Ok::<_, BoxError>(spoken.len())
    };
    let spoken: usize = try_join_all(["audiobooks", "support", "news"].map(product)).await?.into_iter().sum();
    let (peak, refused) = (voices.peak().await, voices.refused().await);
    println!(
        "{spoken} texts spoken, {peak} of {PLAN} calls at once at most, {refused} refused by the vendor"
    );
    assert_eq!((spoken, peak, refused), (120, PLAN, 0));
    Ok(())
}
