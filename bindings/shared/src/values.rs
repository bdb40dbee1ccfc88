//! Values of the SDK as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_sdk::admission::{Admission, Shed};
use sluice_sdk::core::{Amount, Timestamp};
use sluice_sdk::reactions::{CoolDown, EndedCoolDown, Observed, Penalty, Refilled};
use sluice_sdk::reservations::{Reservation, StaleReport};
use sluice_sdk::{Closed, Decision, Dimension, Released, Replied, RetryIn, Settled, Ticket};

use crate::words::{action, level, limit, settled, tokens};

/// A value that can be handed to another language.
pub(crate) trait ToJson {
    fn to_json(&self) -> Value;
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Milliseconds since 1970.
pub(crate) fn instant(at: Timestamp) -> Value {
    let micros = Duration::from_micros(u64::try_from(at.micros()).unwrap_or_default());
    json!(ms(micros))
}

impl ToJson for () {
    fn to_json(&self) -> Value {
        Value::Null
    }
}

impl ToJson for bool {
    fn to_json(&self) -> Value {
        json!(self)
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, ToJson::to_json)
    }
}

impl<T: ToJson> ToJson for Vec<T> {
    fn to_json(&self) -> Value {
        self.iter().map(ToJson::to_json).collect()
    }
}

impl ToJson for RetryIn {
    fn to_json(&self) -> Value {
        json!({
            "waitMs": ms(self.wait()),
            "dimension": self.dimension().as_str(),
            "reason": self.reason().as_str(),
            "delaySeconds": self.delay_seconds(),
            "ticket": self.ticket().map(ToJson::to_json),
            "noTicket": self.no_ticket().map(|why| why.as_str()),
            "message": self.to_string(),
        })
    }
}

impl ToJson for Ticket {
    fn to_json(&self) -> Value {
        json!({
            "text": self.to_string(),
            "startAt": instant(self.start_at()),
            "useBy": instant(self.use_by()),
            "dimensions": self.dimensions().iter().map(Dimension::as_str).collect::<Vec<_>>(),
            "key": self.key(),
        })
    }
}

impl ToJson for Released {
    fn to_json(&self) -> Value {
        json!(self.as_str())
    }
}

impl ToJson for Settled {
    fn to_json(&self) -> Value {
        let (outcome, amount, not_charged) = settled(*self);
        json!({ "outcome": outcome, "amount": amount, "notCharged": not_charged })
    }
}

impl ToJson for Decision {
    fn to_json(&self) -> Value {
        json!({ "action": action(*self), "waitMs": self.wait().map(ms), "delaySeconds": self.delay_seconds() })
    }
}

impl ToJson for Observed {
    fn to_json(&self) -> Value {
        let ((level, lowered_by), (limit, reported)) = (level(self.level), limit(self.limit));
        json!({
            "level": level, "loweredBy": lowered_by, "limit": limit, "reportedLimit": reported,
            "unreadable": self.unreadable,
        })
    }
}

impl ToJson for Replied {
    fn to_json(&self) -> Value {
        let observed = self.observed.iter().map(|(dimension, seen)| (dimension.to_string(), seen.to_json()));
        json!({ "decision": self.decision.to_json(), "observed": observed.collect::<serde_json::Map<_, _>>() })
    }
}

impl ToJson for Penalty {
    fn to_json(&self) -> Value {
        let (applied, level) = match *self {
            Self::Applied(level) => (true, level),
            Self::NothingToTake(level) => (false, level),
            _ => (false, Amount::ZERO),
        };
        json!({ "applied": applied, "level": tokens(level) })
    }
}

impl ToJson for CoolDown {
    fn to_json(&self) -> Value {
        json!({ "until": instant(self.until()), "wasSet": matches!(self, Self::Set(_)) })
    }
}

/// When the cool-down that was ended would have ended; null if none was in force.
impl ToJson for EndedCoolDown {
    fn to_json(&self) -> Value {
        match *self {
            Self::Ended(until) => instant(until),
            _ => Value::Null,
        }
    }
}

impl ToJson for Refilled {
    fn to_json(&self) -> Value {
        let (before, level) = match *self {
            Self::Set { from, level } => (from, level),
            Self::Already(level) => (level, level),
            _ => (Amount::ZERO, Amount::ZERO),
        };
        json!({ "before": tokens(before), "level": tokens(level) })
    }
}

impl ToJson for Shed {
    fn to_json(&self) -> Value {
        json!({
            "admitted": false,
            "waitMs": ms(self.wait()),
            "retryAfterMs": ms(self.retry_after()),
            "reason": self.reason().as_str(),
        })
    }
}

impl ToJson for Admission {
    fn to_json(&self) -> Value {
        match self {
            Self::Shed(shed) => shed.to_json(),
            Self::Admitted(admitted) => json!({
                "admitted": true,
                "waitMs": admitted.wait().map(ms),
                "wouldShed": admitted.would_shed().map(ToJson::to_json),
            }),
        }
    }
}

impl ToJson for Closed {
    fn to_json(&self) -> Value {
        let left =
            self.left.iter().map(|left| json!({ "dimension": left.dimension.as_str(), "lease": left.lease }));
        json!({ "cutOff": self.cut_off, "left": left.collect::<Vec<_>>() })
    }
}

impl ToJson for Reservation {
    fn to_json(&self) -> Value {
        json!({
            "reservationId": self.id().to_string(),
            "requestId": self.request(),
            "bucketId": self.bucket(),
            "estimatedTokens": self.estimated_tokens().map(tokens),
            "createdAt": instant(self.created_at()),
        })
    }
}

impl ToJson for StaleReport {
    fn to_json(&self) -> Value {
        json!({ "givenBack": self.given_back, "late": self.late, "failed": self.failed })
    }
}
