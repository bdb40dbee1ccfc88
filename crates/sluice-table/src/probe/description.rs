//! The table itself: its state, throughput, key, protection, TTL and backups.

use aws_sdk_dynamodb::types::{self, BillingMode, KeyType, PointInTimeRecoveryStatus, TimeToLiveStatus};
use sluice_core::schema::KEY;

use super::{Probe, Probed};

/// What DynamoDB says about a table.
#[derive(Clone, Debug)]
pub struct TableDescription {
    /// DynamoDB's word for the state, such as `ACTIVE`.
    pub status: Option<String>,
    /// The provisioned throughput; `None` if the table is billed on demand.
    pub provisioned: Option<Provisioned>,
    /// The name of the partition key.
    pub partition_key: Option<String>,
    /// The name of the sort key.
    pub sort_key: Option<String>,
    /// The type of the attribute that is the schema's key, as DynamoDB spells it: `S` for a string.
    pub key_type: Option<String>,
    /// Whether the table is protected from deletion.
    pub is_protected: bool,
    /// The other Regions of a global table.
    pub replicas: Vec<String>,
}

/// Units that a table provides.
#[derive(Clone, Copy, Debug)]
pub struct Provisioned {
    /// Write units a second.
    pub write_units: i64,
    /// Read units a second.
    pub read_units: i64,
}

impl Probe<'_> {
    /// Describes the table; `None` if the reply has no description.
    pub async fn description(self) -> Probed<Option<TableDescription>> {
        let reply = self.dynamo.describe_table().table_name(self.table).send().await;
        Probed::of(reply.map(|reply| reply.table().map(described)))
    }

    /// The attribute that TTL is on; `None` if TTL is off.
    pub async fn ttl(self) -> Probed<Option<String>> {
        let reply = self.dynamo.describe_time_to_live().table_name(self.table).send().await;
        Probed::of(reply.map(|reply| {
            let described = reply.time_to_live_description?;
            let is_on = matches!(
                described.time_to_live_status,
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
            );
            is_on.then(|| described.attribute_name.unwrap_or_default())
        }))
    }

    /// Whether the table can be restored to a point in time.
    pub async fn has_backups(self) -> Probed<bool> {
        let reply = self.dynamo.describe_continuous_backups().table_name(self.table).send().await;
        Probed::of(reply.map(|reply| {
            let described = reply.continuous_backups_description();
            let recovery = described.and_then(|described| described.point_in_time_recovery_description());
            let status = recovery.and_then(|recovery| recovery.point_in_time_recovery_status());
            status == Some(&PointInTimeRecoveryStatus::Enabled)
        }))
    }
}

fn described(table: &types::TableDescription) -> TableDescription {
    let keys = table.key_schema();
    let name_of =
        |kind: KeyType| keys.iter().find(|key| *key.key_type() == kind).map(|key| key.attribute_name.clone());
    let attribute = table.attribute_definitions().iter().find(|one| one.attribute_name() == KEY);
    TableDescription {
        status: table.table_status().map(|status| status.as_str().to_owned()),
        provisioned: provisioned(table),
        partition_key: name_of(KeyType::Hash),
        sort_key: name_of(KeyType::Range),
        key_type: attribute.map(|attribute| attribute.attribute_type().as_str().to_owned()),
        is_protected: table.deletion_protection_enabled() == Some(true),
        replicas: table
            .replicas()
            .iter()
            .filter_map(|replica| replica.region_name().map(str::to_owned))
            .collect(),
    }
}

fn provisioned(table: &types::TableDescription) -> Option<Provisioned> {
    let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    let provisioned = table.provisioned_throughput();
    let write_units = provisioned.and_then(|throughput| throughput.write_capacity_units()).unwrap_or(0);
    let read_units = provisioned.and_then(|throughput| throughput.read_capacity_units()).unwrap_or(0);
    // DynamoDB leaves the mode out if a table was always provisioned, and returns zeros for a table on
    // demand.
    let is_on_demand = mode == Some(&BillingMode::PayPerRequest) || (mode.is_none() && write_units == 0);
    (!is_on_demand).then_some(Provisioned { write_units, read_units })
}
