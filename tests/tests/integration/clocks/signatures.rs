//! AWS refuses a signature that is some minutes off; the AWS SDK signs the next request by the `Date` of the
//! refusal.

use super::*;
use crate::world::take;

const RPM: &str = "openai#rpm";
const AWS_TAKES: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn a_signature_that_is_hours_off_is_mended_by_the_refusal() {
    for off in [HOUR, -24 * HOUR] {
        let world = World::embedded().await;
        world.rate(RPM, 10, 10).await;
        world.dynamo.faults().refuse_signatures_off_by(AWS_TAKES);
        let client = world.dynamo.client_off_by(Client::builder(world.table()).max_retries(0), off);
        world.dynamo.meter().reset();
        drop(take(&client, RPM).await);
        let offset = client.clock_offset().unwrap();
        assert!((offset.lower_micros()..=offset.upper_micros()).contains(&-off), "{offset:?}");
        drop(take(&client, RPM).await);
        assert_eq!(world.bucket(RPM).await.tokens().to_string(), "8");
    }
}

/// A secret that is wrong has the same code: it is tried twice, and told.
#[tokio::test(start_paused = true)]
async fn a_signature_that_stays_refused_is_told_after_two_tries() {
    let world = World::embedded().await;
    world.rate(RPM, 10, 10).await;
    let refusal = sluice_testkit::Fault::service(
        "InvalidSignatureException",
        400,
        serde_json::json!({ "message": "The request signature we calculated does not match the signature you provided." }),
    );
    world.dynamo.faults().always(sluice_testkit::Operation::GetItem, refusal);
    world.dynamo.meter().reset();
    let error = world.client().acquire(RPM).await.unwrap_err().to_string();
    assert!(error.contains("no valid AWS credentials"), "{error}");
    assert_eq!(world.dynamo.meter().reset().requests, 2);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_without_a_date_is_taken_to_agree_with_the_machine() {
    let world = World::embedded().await;
    world.rate(RPM, 10, 10).await;
    world.dynamo.faults().hide_date();
    let client = world.client_off_by(-5 * SECOND);
    drop(take(&client, RPM).await);
    assert_eq!(client.clock_offset(), None);
    let behind = world.dynamo.clock().now().micros() - client.now().micros();
    assert_eq!(behind, 5 * SECOND);
}
