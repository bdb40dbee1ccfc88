//! One request: its span, duration, units and outcome.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::RequestId;
use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemOutput;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemOutput;
use aws_sdk_dynamodb::operation::get_item::GetItemOutput;
use aws_sdk_dynamodb::operation::put_item::PutItemOutput;
use aws_sdk_dynamodb::operation::scan::ScanOutput;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsOutput;
use aws_sdk_dynamodb::operation::update_item::UpdateItemOutput;
use aws_sdk_dynamodb::types::ConsumedCapacity;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::answer::ServiceAnswer;
use super::connection::Store;
use super::error::fate;
use crate::operation::Operation;
use crate::requests::{Ended, ended};
use crate::retry::Fate;
use crate::span;

/// A reply that states its consumed capacity.
pub(super) trait MeteredReply: RequestId {
    fn consumed(&self) -> &[ConsumedCapacity];
}

macro_rules! replies {
    ($($reply:ty),*) => {$(
        impl MeteredReply for $reply {
            fn consumed(&self) -> &[ConsumedCapacity] {
                self.consumed_capacity.as_slice()
            }
        }
    )*};
}

replies!(GetItemOutput, PutItemOutput, UpdateItemOutput, DeleteItemOutput, ScanOutput);

macro_rules! replies_of_many {
    ($($reply:ty),*) => {$(
        impl MeteredReply for $reply {
            fn consumed(&self) -> &[ConsumedCapacity] {
                self.consumed_capacity.as_deref().unwrap_or_default()
            }
        }
    )*};
}

replies_of_many!(BatchGetItemOutput, TransactWriteItemsOutput);

impl Store {
    /// Sends a request once.
    pub(super) async fn send_once<T, E>(
        &self,
        operation: Operation,
        attempt: u32,
        request: impl Future<Output = Result<T, SdkError<E>>>,
    ) -> Result<T, SdkError<E>>
    where
        T: MeteredReply,
        E: ProvideErrorMetadata + ServiceAnswer,
    {
        let span = span::request(operation, &self.link.table, self.server(), attempt);
        let began = Instant::now();
        let reply = request.instrument(span.clone()).await;
        let took = began.elapsed();
        match &reply {
            Ok(reply) => {
                self.link.units.used(operation, reply.consumed().iter());
                ended(operation, Ended::Ok, took);
                span.record("aws.request_id", reply.request_id());
            }
            Err(error) => {
                ended(operation, how_it_ended(error), took);
                record_error(&span, error);
            }
        }
        reply
    }
}

fn how_it_ended<E: ProvideErrorMetadata + ServiceAnswer>(error: &SdkError<E>) -> Ended {
    if let SdkError::ServiceError(context) = error
        && let Some(ended) = context.err().ended()
    {
        return ended;
    }
    match fate(error) {
        Fate::Conflict => Ended::Conflict,
        Fate::Throttled => Ended::Throttled,
        _ => Ended::Error,
    }
}

/// Records an error in the span. A false condition is an answer, so the span does not fail for it.
fn record_error<E: ProvideErrorMetadata + ServiceAnswer>(span: &Span, error: &SdkError<E, HttpResponse>) {
    if span.is_disabled() {
        return;
    }
    span.record("aws.request_id", error.request_id());
    let code = error.code();
    span.record("db.response.status_code", code);
    if matches!(how_it_ended(error), Ended::Condition) {
        return;
    }
    let kind = match error {
        SdkError::ServiceError(_) => code.unwrap_or("service"),
        SdkError::TimeoutError(_) => "timeout",
        SdkError::DispatchFailure(failure) if failure.is_timeout() => "timeout",
        SdkError::ConstructionFailure(_) => "construction",
        SdkError::DispatchFailure(_) => "dispatch",
        _ => "response",
    };
    span.record("error.type", kind).record("otel.status_code", "ERROR");
}
