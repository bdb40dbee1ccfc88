use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use aws_sdk_dynamodb::{Client as Dynamo, error::SdkError};
use sluice_sdk::core::Timestamp;
use sluice_sdk::core::schema::KEY;
use tokio::time::Instant;

use super::throughput::{BURST, UNITS_PER_SECOND};
use super::*;
use crate::{EmbeddedDynamo, TestClock};

const TABLE: &str = "ontopix-vendor-buckets-test";
const HOT: &str = "openai#rpm";

async fn dynamo(seed: u64) -> EmbeddedDynamo {
    let dynamo = EmbeddedDynamo::with_clock(TestClock::new(Timestamp::from_secs(1_709_550_000))).unwrap();
    dynamo.create_table(TABLE).await.unwrap();
    dynamo.behind(&DynamoProfile::new(seed))
}

/// Adds one to the hot row. Returns the error code if the write is rejected.
async fn update(dynamo: &Dynamo) -> Result<(), String> {
    let request = dynamo.update_item().table_name(TABLE).key(KEY, AttributeValue::S(HOT.into()));
    let request = request.update_expression("ADD tokens :1");
    let sent = request.expression_attribute_values(":1", AttributeValue::N("1".into())).send().await;
    sent.map(drop).map_err(|error| error.code().unwrap_or("?").to_owned())
}

/// Adds one to the hot row and puts a row of its own. Returns the reasons if the transaction is cancelled.
async fn transact(dynamo: &Dynamo, own: &str) -> Result<(), Vec<String>> {
    let text = |value: &str| AttributeValue::S(value.into());
    let update = Update::builder().table_name(TABLE).key(KEY, text(HOT)).update_expression("ADD tokens :1");
    let update = update.expression_attribute_values(":1", AttributeValue::N("1".into())).build().unwrap();
    let put = Put::builder().table_name(TABLE).item(KEY, text(own)).build().unwrap();
    let request = dynamo.transact_write_items();
    let request = request.transact_items(TransactWriteItem::builder().update(update).build());
    let request = request.transact_items(TransactWriteItem::builder().put(put).build());
    match request.send().await {
        Ok(_) => Ok(()),
        Err(SdkError::ServiceError(error)) => match error.err() {
            TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                let codes = cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code());
                Err(codes.map(str::to_owned).collect())
            }
            other => panic!("{other:?}"),
        },
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_holds_its_items_and_a_read_passes() {
    let dynamo = dynamo(1).await;
    let client = dynamo.dynamodb();
    update(&client).await.unwrap();
    let holder = tokio::spawn({
        let client = client.clone();
        async move { transact(&client, "lease#a").await }
    });
    tokio::time::sleep(Duration::from_millis(2)).await;
    let read = client.get_item().table_name(TABLE).key(KEY, AttributeValue::S(HOT.into())).send();
    let (second, single, read) = tokio::join!(transact(&client, "lease#b"), update(&client), read);
    assert_eq!(second.unwrap_err(), ["TransactionConflict", "None"]);
    assert_eq!(single.unwrap_err(), "TransactionConflictException");
    let seen = read.unwrap().item.unwrap()["tokens"].as_n().unwrap().clone();
    assert_eq!(seen, "1", "what a transaction under way writes is not seen");
    holder.await.unwrap().unwrap();
    update(&client).await.unwrap();
    assert_eq!(dynamo.row(TABLE, HOT).unwrap().unwrap()["tokens"]["N"], "3");
    assert!(dynamo.row(TABLE, "lease#b").unwrap().is_none());
    assert_eq!(dynamo.meter().failed_writes(), 2);
}

/// When each write of callers that write without a pause was applied.
async fn applied(callers: usize, length: Duration) -> Vec<Duration> {
    let dynamo = dynamo(1).await;
    let began = Instant::now();
    let applied = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&applied);
    dynamo.faults().watch(move |answered| {
        assert_eq!(answered.status, 200);
        seen.lock().push(began.elapsed());
    });
    let callers = (0..callers).map(|_| {
        let client = dynamo.dynamodb();
        tokio::spawn(async move {
            while began.elapsed() < length {
                if let Err(code) = update(&client).await {
                    assert_eq!(code, "ProvisionedThroughputExceededException");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let applied = applied.lock().clone();
    assert_eq!(dynamo.row(TABLE, HOT).unwrap().unwrap()["tokens"]["N"], applied.len().to_string());
    assert!(dynamo.meter().failed_writes() > 0, "more was asked for than the ceiling");
    applied
}

#[tokio::test(start_paused = true)]
#[allow(clippy::cast_precision_loss)]
async fn no_item_takes_more_than_its_ceiling_in_any_second() {
    let second = Duration::from_secs(1);
    let applied = applied(16, 2 * second).await;
    for (n, from) in applied.iter().enumerate() {
        let within = applied[n..].iter().take_while(|at| **at < *from + second).count();
        assert!(within as f64 <= UNITS_PER_SECOND + BURST, "{within} from {from:?}");
    }
    assert!(applied.len() as f64 >= 0.98 * 2.0 * UNITS_PER_SECOND, "{}", applied.len());
}

/// When each write of three callers is answered.
async fn answers(seed: u64) -> Vec<Vec<Duration>> {
    let dynamo = dynamo(seed).await;
    let began = Instant::now();
    let callers = (0..3).map(|_| {
        let client = dynamo.dynamodb();
        tokio::spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..30 {
                update(&client).await.unwrap();
                answers.push(began.elapsed());
            }
            answers
        })
    });
    let mut all = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        all.push(caller.await.unwrap());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn runs_of_one_seed_are_alike() {
    let first = answers(7).await;
    assert_eq!(first, answers(7).await);
    assert_ne!(first, answers(8).await);
}

#[tokio::test(start_paused = true)]
async fn service_times_have_the_mean_that_they_are_given() {
    let dynamo = dynamo(1).await;
    let client = dynamo.dynamodb();
    let began = Instant::now();
    for _ in 0..400 {
        update(&client).await.unwrap();
    }
    let mean = began.elapsed() / 400;
    assert!((4_200..4_800).contains(&mean.as_micros()), "{mean:?} of 4.5 ms");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_on_an_item_that_is_too_hot_is_cancelled_for_it() {
    let dynamo = dynamo(1).await;
    let client = dynamo.dynamodb();
    // More than the burst and what refills while the writes arrive.
    let writes = (0..200).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { update(&client).await })
    });
    let writes: Vec<_> = writes.collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let cancelled = transact(&client, "lease#a").await;
    assert_eq!(cancelled.unwrap_err(), ["ThrottlingError", "None"]);
    for write in writes {
        let _ = write.await.unwrap();
    }
}
