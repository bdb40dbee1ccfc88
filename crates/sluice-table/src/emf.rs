//! CloudWatch's Embedded Metric Format: a log line that CloudWatch reads as metrics.
//!
//! Source: "Specification: Embedded metric format", Amazon CloudWatch User Guide.

use serde_json::{Map, Value, json};
use sluice_core::Timestamp;

mod recorder;

pub use recorder::EmfRecorder;

const NAMESPACE: &str = "Sluice";

/// A value of a metric: its name, its unit as CloudWatch spells it, and a number.
pub type Reading = (&'static str, &'static str, Value);

/// The unit of a count.
pub const COUNT: &str = "Count";

/// One line: these values under these dimensions, each a name and a value, at this time. CloudWatch drops
/// values whose time is more than two hours ahead, or two weeks ago.
#[must_use]
pub fn line(dimensions: &[(&str, &str)], readings: &[Reading], now: Timestamp) -> Value {
    let names: Vec<&str> = dimensions.iter().map(|(name, _)| *name).collect();
    let defined: Vec<Value> =
        readings.iter().map(|(name, unit, _)| json!({ "Name": name, "Unit": unit })).collect();
    let mut line = Map::new();
    line.insert(
        "_aws".into(),
        json!({
            "Timestamp": now.micros() / 1_000,
            "CloudWatchMetrics": [{ "Namespace": NAMESPACE, "Dimensions": [names], "Metrics": defined }],
        }),
    );
    line.extend(dimensions.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    line.extend(readings.iter().map(|(name, _, value)| ((*name).to_owned(), value.clone())));
    Value::Object(line)
}
