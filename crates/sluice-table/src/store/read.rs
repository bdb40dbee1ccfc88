//! Reads: one row, many rows, and the table page by page.

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::KEY;

use super::answer::Failed;
use super::connection::Store;
use super::error::StoreError;
use super::scan::{Page, Scan};
use super::translate::{self, COUNT_UNITS, value_text};
use super::written::{Item, Resend};
use crate::operation::Operation;

/// The most keys that DynamoDB accepts in a `BatchGetItem`.
const KEYS_PER_BATCH: usize = 100;

impl Store {
    /// Reads a row, strongly consistent.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn read(&self, key: &str) -> Result<Option<Item>, StoreError> {
        let request = || {
            let request = self.link.dynamo.get_item().table_name(&self.link.table).consistent_read(true);
            let request = request.return_consumed_capacity(COUNT_UNITS);
            request.key(KEY, AttributeValue::S(key.to_owned())).send()
        };
        let reply = self.answer_with_retries(Operation::GetItem, Resend::Always, request).await;
        reply.map(|reply| reply.item).map_err(Failed::error)
    }

    /// Reads rows, strongly consistent, in no order, without those that do not exist or stayed throttled.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn read_all(&self, keys: &[String]) -> Result<Vec<Item>, StoreError> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut left = keys.to_vec();
        let mut attempt = 0;
        while !left.is_empty() {
            let now = &left[..left.len().min(KEYS_PER_BATCH)];
            let request = || translate::batch(&self.link.dynamo, &self.link.table, now).send();
            let reply = self
                .answer_with_retries(Operation::BatchGetItem, Resend::Always, request)
                .await
                .map_err(Failed::error)?;
            rows.extend(reply.responses.unwrap_or_default().remove(&self.link.table).unwrap_or_default());
            let unread =
                reply.unprocessed_keys.unwrap_or_default().remove(&self.link.table).map(|rest| rest.keys);
            let unread: Vec<String> = unread.iter().flatten().map(|key| value_text(key, KEY)).collect();
            attempt = if unread.len() < now.len() { 0 } else { attempt + 1 };
            let taken = now.len();
            if attempt > self.link.max_retries {
                left.drain(..taken);
                attempt = 0;
                continue;
            }
            if !unread.is_empty() {
                self.back_off(attempt).await;
            }
            left.splice(..taken, unread);
        }
        Ok(rows)
    }

    /// Reads a page of the table.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn scan(&self, scan: &Scan) -> Result<Page, StoreError> {
        self.scan_within(scan, Resend::Always).await
    }

    /// Reads a page of the table and pays for it at most once: it is not sent again after a lost reply.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn scan_once(&self, scan: &Scan) -> Result<Page, StoreError> {
        self.scan_within(scan, Resend::UnlessAmbiguous).await
    }

    async fn scan_within(&self, scan: &Scan, resend: Resend) -> Result<Page, StoreError> {
        let request = || translate::scan(&self.link.dynamo, &self.link.table, scan).send();
        let reply =
            self.answer_with_retries(Operation::Scan, resend, request).await.map_err(Failed::error)?;
        Ok(Page {
            scanned: usize::try_from(reply.scanned_count).unwrap_or(0),
            rows: reply.items.unwrap_or_default(),
            next: reply.last_evaluated_key,
            read_units: reply.consumed_capacity.and_then(|consumed| consumed.capacity_units),
        })
    }
}
