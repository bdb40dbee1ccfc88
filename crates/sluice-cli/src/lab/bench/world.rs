//! Where a scenario runs: over loopback in real time, or against a modelled DynamoDB in virtual time.

use std::time::Duration;

use serde::Serialize;
use sluice_sdk::core::schema::{TOKENS, table_name};
use sluice_sdk::core::{Amount, Bucket, Cost, Dimension, Limit, Operand, Plan, RatePlanner, Take, Timestamp};
use sluice_sdk::{Client, ClientBuilder, Clock};
use sluice_table::{DynamoClient, Settings, Store};
use sluice_testkit::yardstick::{LoneUpdate, OwnUpdate, Reference};
use sluice_testkit::{
    DynamoProfile, EmbeddedDynamo, Fault, Faults, Meter, Operation, TestClock, dynamodb_at,
};

use super::engine::Engine;
use super::system::Sluice;
use crate::failure::Failure;

/// The two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The embedded engine, served on 127.0.0.1 by a process of its own.
    Loopback,
    /// The embedded engine behind modelled latencies, conflicts and limits of DynamoDB, in virtual time.
    DynamoProfile,
}

/// One table, and what its clients have used.
pub(crate) struct World {
    pub(crate) stage: Stage,
    pub(crate) meter: Meter,
    pub(crate) clock: Clock,
    table: String,
    end: End,
}

enum End {
    Socket(Engine),
    Modelled(EmbeddedDynamo),
}

/// The seed of the model: every run draws the same numbers.
const SEED: u64 = 5;

impl World {
    pub(crate) async fn loopback(buckets: usize) -> Result<Self, Failure> {
        let end = End::Socket(Engine::start(buckets).await?);
        let (meter, table) = (Meter::default(), table_name("bench"));
        Ok(Self { stage: Stage::Loopback, meter, clock: Clock::system(), table, end })
    }

    /// A world in virtual time; the runtime's clock must be paused.
    pub(crate) async fn modelled() -> Result<Self, Failure> {
        fastrand::seed(SEED);
        let table = table_name("bench");
        let dynamo = EmbeddedDynamo::with_clock(TestClock::new(Timestamp::from_secs(1_800_000_000)))?;
        dynamo.create_table(&table).await?;
        dynamo.faults().always(Operation::TransactWriteItems, Fault::NewToken);
        let dynamo = dynamo.behind(&DynamoProfile::new(SEED));
        dynamo.meter().reset();
        let (meter, clock) = (dynamo.meter().clone(), dynamo.clock().off_by(0));
        Ok(Self { stage: Stage::DynamoProfile, meter, clock, table, end: End::Modelled(dynamo) })
    }

    /// A DynamoDB client, as another process would have it.
    pub(crate) fn dynamodb(&self) -> DynamoClient {
        match &self.end {
            End::Socket(engine) => dynamodb(&engine.endpoint, &self.meter),
            End::Modelled(dynamo) => dynamo.dynamodb(),
        }
    }

    fn settings(&self) -> ClientBuilder {
        Client::builder(&self.table).clock(self.clock.clone()).caller("bench").warn_at(None)
    }

    /// Sluice in `processes` processes.
    pub(crate) fn sluice(
        &self,
        processes: usize,
        dimensions: &[(&str, u32)],
        settings: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Vec<Sluice> {
        let one = |_| Sluice {
            client: settings(self.settings()).dynamodb(self.dynamodb()),
            dimensions: dimensions.iter().map(|(name, cost)| ((*name).to_owned(), *cost)).collect(),
        };
        (0..processes).map(one).collect()
    }

    /// The reference algorithm in `processes` processes.
    pub(crate) fn reference(&self, processes: usize, dimensions: &[(&str, u32)]) -> Vec<Reference> {
        let one = |_| Reference {
            dynamo: self.dynamodb(),
            table: self.table.clone(),
            dimensions: dimensions
                .iter()
                .map(|(name, cost)| ((*name).to_owned(), f64::from(*cost)))
                .collect(),
            clock: self.clock.clone(),
        };
        (0..processes).map(one).collect()
    }

    /// A lone conditional update in `processes` processes.
    pub(crate) fn lone_update(&self, processes: usize, dimension: &str) -> Vec<LoneUpdate> {
        let one = |_| LoneUpdate {
            dynamo: self.dynamodb(),
            table: self.table.clone(),
            dimension: dimension.to_owned(),
        };
        (0..processes).map(one).collect()
    }

    /// Sluice's own write for one token, without Sluice. The bucket is neither full nor empty, so one plan
    /// fits every write.
    pub(crate) async fn own_update(&self, dimension: &str) -> Result<OwnUpdate, Failure> {
        let client = self.settings().dynamodb(self.dynamodb());
        let bucket = client.ops().bucket(&Dimension::new(dimension)?).await?;
        let bucket = bucket.ok_or_else(|| Failure::new(format!("there is no bucket {dimension}")))?;
        let take = Take { cost: Cost::ONE, now: self.clock.now(), patience: Duration::ZERO };
        match RatePlanner::new(&bucket).plan(take) {
            Plan::Write(planned) => {
                Ok(OwnUpdate { dynamo: self.dynamodb(), table: self.table.clone(), update: planned.update })
            }
            other => Err(Failure::new(format!("no write is planned for {dimension}: {other:?}"))),
        }
    }

    /// Creates a bucket that holds `tokens` now.
    pub(crate) async fn bucket(&self, name: &str, limit: &Limit, tokens: Amount) -> Result<(), Failure> {
        let mut row = Bucket::full(Dimension::new(name)?, *limit, self.clock.now()).create();
        row.item.retain(|(attribute, _)| *attribute != TOKENS);
        row.item.push((TOKENS, Operand::Number(tokens.to_string())));
        let settings = Settings { clock: self.clock.clone(), ..Settings::new(self.table.clone()) };
        Store::new(&self.dynamodb(), settings).put(&row).await?;
        Ok(())
    }
}

#[cfg(test)]
impl World {
    /// The current value of a number in a row; `None` if there is no such row.
    pub(crate) fn number(&self, key: &str, attribute: &str) -> Option<f64> {
        let End::Modelled(dynamo) = &self.end else { return None };
        dynamo.row(&self.table, key).ok()??[attribute]["N"].as_str()?.parse().ok()
    }

    pub(crate) async fn leases(&self) -> usize {
        self.settings()
            .dynamodb(self.dynamodb())
            .ops()
            .leases()
            .await
            .map_or(usize::MAX, |leases| leases.len())
    }
}

/// A DynamoDB client without transaction tokens, for all systems alike: for each token, the engine walks all
/// transactions of the last ten minutes, which DynamoDB does not.
fn dynamodb(endpoint: &str, meter: &Meter) -> DynamoClient {
    let faults = Faults::default();
    faults.always(Operation::TransactWriteItems, Fault::NewToken);
    dynamodb_at(endpoint, meter.clone(), faults)
}

/// A client of Sluice for the engine of another process.
pub(crate) fn sluice_at(endpoint: &str, meter: &Meter) -> ClientAt {
    ClientAt {
        settings: Client::builder(table_name("bench")).caller("bench").warn_at(None),
        dynamo: dynamodb(endpoint, meter),
    }
}

/// Settings that are not complete yet, and the connection.
pub(crate) struct ClientAt {
    pub(crate) settings: ClientBuilder,
    pub(crate) dynamo: DynamoClient,
}
