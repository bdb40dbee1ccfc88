//! Vendors that round what they say.

use sluice_core::Amount;
use sluice_sdk::Request;
use sluice_sdk::reactions::ObservedLevel;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn what_a_vendor_rounds_off_lowers_nothing() {
    const TPM: &str = "anthropic#tpm";
    let (world, request) = (World::new().await, Request::from(TPM).cost(TPM, 800));
    world.tokens(TPM, 100_000, 600).await;
    let client = world.client();
    let call = client.acquire(request).await.unwrap().granted().unwrap();
    let says = |remaining: &str| [("anthropic-ratelimit-tokens-remaining", remaining.to_owned())];
    let level = async |remaining| client.observe(TPM, &says(remaining), Some(&call)).await.unwrap().level;
    assert_eq!(
        level("98000").await,
        ObservedLevel::Agrees,
        "it may have 98,499, and the bucket 99,200: less than a call"
    );
    assert_eq!(
        level("97000").await,
        ObservedLevel::Lowered(Amount::from_tokens(1_700)),
        "it has 97,500 at most"
    );
}
