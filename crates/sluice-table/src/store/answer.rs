//! What a reply of DynamoDB means: a row, a false condition, or a cancelled transaction.

use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::scan::ScanError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types;
use sluice_core::{CancellationCause, CancellationReason};

use super::error::StoreError;
use super::written::{Cancelled, Item, Written};
use crate::requests::Ended;

/// Why a request has no plain reply.
pub(super) enum Failed {
    /// The condition was false.
    Condition(Option<Item>),
    /// The transaction was cancelled.
    Cancelled(Vec<types::CancellationReason>),
    Store(StoreError),
}

impl Failed {
    pub(super) fn condition(self) -> Result<Written, StoreError> {
        match self {
            Self::Condition(row) => Ok(Written::ConditionFailed(row)),
            other => Err(other.error()),
        }
    }

    pub(super) fn error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Condition(_) | Self::Cancelled(_) => unreachable!("the request carries no condition"),
        }
    }
}

/// Service errors that are answers and not failures: a false condition, and the reasons of a cancellation.
pub(super) trait ServiceAnswer {
    fn answer(&self) -> Option<Failed> {
        None
    }

    /// The same answer as a metric's outcome.
    fn ended(&self) -> Option<Ended> {
        None
    }
}

impl ServiceAnswer for BatchGetItemError {}
impl ServiceAnswer for GetItemError {}
impl ServiceAnswer for ScanError {}

impl ServiceAnswer for UpdateItemError {
    fn answer(&self) -> Option<Failed> {
        let Self::ConditionalCheckFailedException(failed) = self else { return None };
        Some(Failed::Condition(failed.item.clone()))
    }

    fn ended(&self) -> Option<Ended> {
        self.is_conditional_check_failed_exception().then_some(Ended::Condition)
    }
}

impl ServiceAnswer for PutItemError {
    fn answer(&self) -> Option<Failed> {
        let Self::ConditionalCheckFailedException(failed) = self else { return None };
        Some(Failed::Condition(failed.item.clone()))
    }

    fn ended(&self) -> Option<Ended> {
        self.is_conditional_check_failed_exception().then_some(Ended::Condition)
    }
}

impl ServiceAnswer for DeleteItemError {
    fn answer(&self) -> Option<Failed> {
        let Self::ConditionalCheckFailedException(failed) = self else { return None };
        Some(Failed::Condition(failed.item.clone()))
    }

    fn ended(&self) -> Option<Ended> {
        self.is_conditional_check_failed_exception().then_some(Ended::Condition)
    }
}

impl ServiceAnswer for TransactWriteItemsError {
    fn answer(&self) -> Option<Failed> {
        let Self::TransactionCanceledException(cancelled) = self else { return None };
        cancelled.cancellation_reasons.clone().map(Failed::Cancelled)
    }

    fn ended(&self) -> Option<Ended> {
        let Self::TransactionCanceledException(cancelled) = self else { return None };
        cancelled.cancellation_reasons.as_deref().map(of_reasons)
    }
}

pub(super) fn cancelled(reason: types::CancellationReason) -> Cancelled {
    let code = reason.code.unwrap_or_default();
    let cause = CancellationCause::from_code(&code);
    let message = match reason.message {
        Some(message) => format!("{code}: {message}"),
        None => code,
    };
    Cancelled {
        reason: CancellationReason { cause, message },
        row: reason.item.filter(|item| !item.is_empty()),
    }
}

/// The outcome of a cancellation. A false condition comes first: the next plan begins with it.
fn of_reasons(reasons: &[types::CancellationReason]) -> Ended {
    let is = |code: &str| reasons.iter().any(|reason| reason.code.as_deref() == Some(code));
    if is("ConditionalCheckFailed") {
        Ended::Condition
    } else if is("TransactionConflict") {
        Ended::Conflict
    } else if is("ThrottlingError") || is("ProvisionedThroughputExceeded") {
        Ended::Throttled
    } else {
        Ended::Error
    }
}
