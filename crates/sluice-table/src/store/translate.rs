//! Translates core's writes into requests of the AWS SDK, and rows of the SDK for core.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::operation::batch_get_item::builders::BatchGetItemFluentBuilder;
use aws_sdk_dynamodb::operation::delete_item::builders::DeleteItemFluentBuilder;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::scan::builders::ScanFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, KeysAndAttributes, ReturnConsumedCapacity, ReturnValue,
    ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use sluice_core::schema::{Field, KEY, Row};
use sluice_core::{AttributeNames, Delete, Operand, Put, Update, Write};

use super::scan::{Consistency, Scan};
use super::written::Item;

/// Each reply states the units that it cost.
pub(super) const COUNT_UNITS: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;

/// A row of the AWS SDK, for core to read.
#[derive(Debug)]
pub struct Attributes<'a>(pub &'a Item);

impl Row for Attributes<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(|value| match value {
            AttributeValue::S(text) => Field::Text(text),
            AttributeValue::N(number) => Field::Number(number),
            _ => Field::Other,
        })
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let Some(AttributeValue::M(entries)) = self.0.get(name) else { return false };
        for (name, value) in entries {
            match value {
                AttributeValue::M(entry) => visit(name, Some(&Attributes(entry))),
                _ => visit(name, None),
            }
        }
        true
    }
}

/// An attribute of a row as text, for messages; `?` if the row has no such attribute.
#[must_use]
pub fn value_text(row: &Item, attribute: &str) -> String {
    match row.get(attribute) {
        Some(AttributeValue::S(text) | AttributeValue::N(text)) => text.clone(),
        _ => String::from("?"),
    }
}

fn value(operand: &Operand) -> AttributeValue {
    match operand {
        Operand::Text(text) => AttributeValue::S(text.clone()),
        Operand::Number(number) => AttributeValue::N(number.clone()),
        Operand::Map(entries) => AttributeValue::M(
            entries.iter().map(|(name, entry)| (name.as_ref().to_owned(), value(entry))).collect(),
        ),
    }
}

fn values(operands: &[(&'static str, Operand)]) -> Option<HashMap<String, AttributeValue>> {
    let values: HashMap<_, _> =
        operands.iter().map(|(name, operand)| ((*name).to_owned(), value(operand))).collect();
    (!values.is_empty()).then_some(values)
}

fn names(names: &AttributeNames) -> Option<HashMap<String, String>> {
    let names: HashMap<_, _> =
        names.iter().map(|(placeholder, name)| (placeholder, name.to_owned())).collect();
    (!names.is_empty()).then_some(names)
}

/// The primary key of a row.
#[must_use]
pub fn row_key(key: &str) -> Item {
    HashMap::from([(KEY.to_owned(), AttributeValue::S(key.to_owned()))])
}

fn key(key: &str) -> Option<Item> {
    Some(row_key(key))
}

pub(super) fn update(dynamo: &Dynamo, table: &str, update: &Update) -> UpdateItemFluentBuilder {
    dynamo
        .update_item()
        .table_name(table)
        .set_key(key(&update.key))
        .update_expression(update.statement.update.as_ref())
        .condition_expression(update.statement.condition.as_ref())
        .set_expression_attribute_names(names(&update.statement.names))
        .set_expression_attribute_values(values(&update.values))
        .return_values(ReturnValue::AllNew)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .return_consumed_capacity(COUNT_UNITS)
}

pub(super) fn put(dynamo: &Dynamo, table: &str, put: &Put) -> PutItemFluentBuilder {
    dynamo
        .put_item()
        .table_name(table)
        .set_item(values(&put.item))
        .condition_expression(put.statement.condition.as_ref())
        .set_expression_attribute_names(names(&put.statement.names))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .return_consumed_capacity(COUNT_UNITS)
}

pub(super) fn delete(dynamo: &Dynamo, table: &str, delete: &Delete) -> DeleteItemFluentBuilder {
    dynamo
        .delete_item()
        .table_name(table)
        .set_key(key(&delete.key))
        .condition_expression(delete.statement.condition.as_ref())
        .set_expression_attribute_names(names(&delete.statement.names))
        .set_expression_attribute_values(values(&delete.values))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .return_consumed_capacity(COUNT_UNITS)
}

pub(super) fn batch(dynamo: &Dynamo, table: &str, keys: &[String]) -> BatchGetItemFluentBuilder {
    let keys = keys.iter().filter_map(|name| key(name)).collect();
    let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
    let wanted = wanted.ok().map(|wanted| HashMap::from([(table.to_owned(), wanted)]));
    dynamo.batch_get_item().set_request_items(wanted).return_consumed_capacity(COUNT_UNITS)
}

pub(super) fn scan(dynamo: &Dynamo, table: &str, scan: &Scan) -> ScanFluentBuilder {
    let values: HashMap<_, _> =
        scan.values.iter().map(|(name, operand)| (name.clone().into(), value(operand))).collect();
    // DynamoDB rejects an empty expression, and empty maps of names and values.
    dynamo
        .scan()
        .table_name(table)
        .segment(scan.segment)
        .total_segments(scan.segments)
        .set_filter_expression((!scan.filter.is_empty()).then(|| scan.filter.clone().into_owned()))
        .consistent_read(scan.consistency == Consistency::Strong)
        .set_expression_attribute_names(names(&scan.names))
        .set_expression_attribute_values((!values.is_empty()).then_some(values))
        .set_limit(scan.page)
        .set_projection_expression(scan.projection.map(str::to_owned))
        .set_exclusive_start_key(scan.from.clone())
        .return_consumed_capacity(COUNT_UNITS)
}

/// A write as an action of a transaction, without its table.
pub(super) fn action(write: &Write) -> TransactWriteItem {
    use aws_sdk_dynamodb::types::{Delete as DeleteAction, Put as PutAction, Update as UpdateAction};
    let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
    let action = TransactWriteItem::builder();
    match write {
        Write::Update(update) => action.set_update(
            UpdateAction::builder()
                .table_name("")
                .set_key(key(&update.key))
                .update_expression(update.statement.update.as_ref())
                .condition_expression(update.statement.condition.as_ref())
                .set_expression_attribute_names(names(&update.statement.names))
                .set_expression_attribute_values(values(&update.values))
                .return_values_on_condition_check_failure(all_old.clone())
                .build()
                .ok(),
        ),
        Write::Put(put) => action.set_put(
            PutAction::builder()
                .table_name("")
                .set_item(values(&put.item))
                .condition_expression(put.statement.condition.as_ref())
                .set_expression_attribute_names(names(&put.statement.names))
                .return_values_on_condition_check_failure(all_old)
                .build()
                .ok(),
        ),
        Write::Delete(delete) => action.set_delete(
            DeleteAction::builder()
                .table_name("")
                .set_key(key(&delete.key))
                .condition_expression(delete.statement.condition.as_ref())
                .set_expression_attribute_names(names(&delete.statement.names))
                .set_expression_attribute_values(values(&delete.values))
                .build()
                .ok(),
        ),
    }
    .build()
}

/// The action with the table's name.
pub(super) fn in_table(item: &TransactWriteItem, table: &str) -> TransactWriteItem {
    let mut item = item.clone();
    if let Some(update) = &mut item.update {
        table.clone_into(&mut update.table_name);
    }
    if let Some(put) = &mut item.put {
        table.clone_into(&mut put.table_name);
    }
    if let Some(delete) = &mut item.delete {
        table.clone_into(&mut delete.table_name);
    }
    item
}
