//! The engine on a socket, behind faults: what clients of any language meet there.

use std::net::Ipv4Addr;
use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use sluice_core::schema::KEY;
use sluice_testkit::{EmbeddedDynamo, Fault, Operation, Server};

const TABLE: &str = "faults-on-a-socket";

async fn served() -> (EmbeddedDynamo, Server, Dynamo) {
    let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    let server = dynamo.serve_with_faults((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let config = aws_sdk_dynamodb::config::Builder::from(&crate::world::sdk_config());
    let config = config.endpoint_url(server.endpoint_url()).retry_config(RetryConfig::disabled()).build();
    (dynamo, server, Dynamo::from_conf(config))
}

async fn put(client: &Dynamo, key: &str) -> Result<(), String> {
    let key = aws_sdk_dynamodb::types::AttributeValue::S(key.to_owned());
    let sent = client.put_item().table_name(TABLE).item(KEY, key).send().await;
    sent.map(drop).map_err(|error| format!("{error:?}"))
}

#[tokio::test]
async fn a_lost_reply_is_a_connection_that_breaks_after_the_write() {
    let (dynamo, _server, client) = served().await;
    put(&client, "first").await.unwrap();
    dynamo.faults().next(Operation::PutItem, Fault::LoseReply);
    assert!(put(&client, "second").await.unwrap_err().contains("DispatchFailure"));
    assert!(dynamo.row(TABLE, "second").unwrap().is_some());
    dynamo.faults().next(Operation::PutItem, Fault::LoseRequest);
    assert!(put(&client, "third").await.unwrap_err().contains("DispatchFailure"));
    assert!(dynamo.row(TABLE, "third").unwrap().is_none());
    dynamo.faults().next(Operation::PutItem, Fault::throttled());
    assert!(put(&client, "third").await.unwrap_err().contains("ProvisionedThroughputExceeded"));
    put(&client, "third").await.unwrap();
    assert!(dynamo.row(TABLE, "third").unwrap().is_some());
}

#[tokio::test]
async fn faults_at_random_are_of_every_kind_and_as_many_as_asked_for() {
    let (dynamo, _server, client) = served().await;
    dynamo.faults().at_random(0.5);
    let mut failures = Vec::new();
    for number in 0..200 {
        failures.extend(put(&client, &format!("row {number}")).await.err());
    }
    // A quarter of the faults are only late. With chances of one half, 200 draws are in this range all but
    // always.
    assert!((40..120).contains(&failures.len()), "{}", failures.len());
    for kind in
        ["DispatchFailure", "ProvisionedThroughputExceeded", "TransactionConflict", "InternalServerError"]
    {
        assert!(failures.iter().any(|failure| failure.contains(kind)), "none is {kind}");
    }
    dynamo.faults().clear();
    put(&client, "last").await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_stopped_answers_nobody() {
    let (_dynamo, server, client) = served().await;
    put(&client, "first").await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), server.stop()).await.unwrap().unwrap();
    assert!(put(&client, "second").await.is_err());
}
