//! A batch: 2,000 calls, at the pace that the shared limits allow, and again if the vendor refuses one.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sluice_examples::{Answer, BoxError, Vendor, sluice};
use sluice_sdk::{Client, Dimension};

const RPM: Dimension = Dimension::constant("acme#rpm");
const TPM: Dimension = Dimension::constant("acme#tpm");

async fn summarize(sluice: &Client, vendor: &Vendor, text: &str) -> Result<Answer, BoxError> {
    // The tokens that this vendor counts. A real one is reserved the prompt and `max_tokens`, or an estimate.
    let slot = sluice.slot([RPM, TPM]).cost(TPM, text.len() + 20).max_wait(Duration::from_secs(3_600)).retry(5);
    slot.run(async |slot| {
        let (parts, answer) = vendor.ask(text).await?.into_parts();
        slot.reply(&parts, (TPM, answer.used)).await?;
        if parts.status.is_success() { Ok(answer) } else { Err("refused".into()) }
    })
    .await
}

/// One text that fails does not end the batch.
async fn batch(sluice: &Client, vendor: &Vendor, texts: Vec<String>) -> Vec<Result<Answer, BoxError>> {
    stream::iter(texts).map(async |text| summarize(sluice, vendor, &text).await).buffer_unordered(200).collect().await
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the result of the example")]
async fn main() -> Result<(), BoxError> {
    let (sluice, vendor) = (sluice(RPM, 400, TPM, 20_000).await?, Vendor::new(400, 20_000));
    let texts = (0..2_000).map(|at| format!("text number {at}")).collect();
    let answers: Result<Vec<_>, _> = batch(&sluice, &vendor, texts).await.into_iter().collect();
    let closed = sluice.close(Duration::from_secs(5)).await;
    let answers = answers?;
    println!("{} answers, {} refused by the vendor, {closed:?}", answers.len(), vendor.refused().await);
    assert_eq!(answers.len(), 2_000);
    Ok(())
}
