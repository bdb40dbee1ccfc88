//! One row of a table, and just enough of DynamoDB's expressions to apply the statements of a rate bucket to it.

use std::collections::BTreeMap;

use sluice_core::schema::{Field, KEY, Row};
use sluice_core::{Amount, Bucket, Dimension, Operand, Update};

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Item(BTreeMap<String, Operand>);

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(|value| match value {
            Operand::Text(text) => Field::Text(text),
            Operand::Number(text) => Field::Number(text),
            _ => Field::Other,
        })
    }
}

impl Item {
    pub(crate) fn of(bucket: &Bucket) -> Self {
        Self(bucket.create().item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    pub(crate) fn bucket(&self) -> Bucket {
        let Some(Field::Text(name)) = self.field(KEY) else { panic!("no key") };
        Bucket::read(&Dimension::new(name).unwrap(), self).unwrap()
    }

    /// A number in millionths: a literal, a value, an attribute, or absent.
    fn number(&self, update: &Update, term: &str) -> Option<i64> {
        let text = match term.as_bytes()[0] {
            b':' => match &update.values.iter().find(|(name, _)| *name == term)?.1 {
                Operand::Number(text) => text.clone(),
                other => panic!("{other:?}"),
            },
            b'#' => match self.field(attribute(update, term))? {
                Field::Number(text) => text.to_owned(),
                other => panic!("{other:?}"),
            },
            _ => panic!("{term}"),
        };
        Some(text.parse::<Amount>().unwrap().micros())
    }

    pub(crate) fn holds(&self, update: &Update) -> bool {
        let condition: &str = &update.statement.condition;
        let open = "(attribute_not_exists(#b) OR #b <= ";
        let (plain, blocked) = condition.split_once(&format!(" AND {open}")).unwrap_or((condition, ""));
        if let Some(term) = blocked.strip_suffix(')')
            && let Some(until) = self.number(update, "#b")
            && until > self.number(update, term).unwrap()
        {
            return false;
        }
        let (plain, either) = plain.split_once(" AND (").unwrap_or((plain, ""));
        let mut either = either.trim_end_matches(')').split(" OR ").filter(|one| !one.is_empty()).peekable();
        if either.peek().is_some() && !either.any(|one| self.all_hold(update, one)) {
            return false;
        }
        self.all_hold(update, plain)
    }

    /// Comparisons joined by AND.
    fn all_hold(&self, update: &Update, comparisons: &str) -> bool {
        let words: Vec<&str> = comparisons.split(' ').collect();
        let value = |term| self.number(update, term).unwrap();
        let mut at = 0;
        while at < words.len() {
            let left = value(words[at]);
            let holds = match words[at + 1] {
                "=" => left == value(words[at + 2]),
                ">" => left > value(words[at + 2]),
                ">=" => left >= value(words[at + 2]),
                "<=" => left <= value(words[at + 2]),
                other => panic!("{other}"),
            };
            if !holds {
                return false;
            }
            at += 4;
        }
        true
    }

    pub(crate) fn apply(&mut self, update: &Update) -> bool {
        if !self.holds(update) {
            return false;
        }
        let before = self.clone();
        for clause in update.statement.update.strip_prefix("SET ").unwrap().split(", ") {
            let words: Vec<&str> = clause.split(' ').collect();
            let value = |term| before.number(update, term).unwrap();
            let number = match words[..] {
                [_, "=", term] => value(term),
                [_, "=", left, "+", right] => value(left) + value(right),
                [_, "=", left, "-", right] => value(left) - value(right),
                _ => panic!("{clause}"),
            };
            let text = Amount::from_micros(number).to_string();
            self.0.insert(attribute(update, words[0]).to_owned(), Operand::Number(text));
        }
        true
    }
}

fn attribute<'a>(update: &'a Update, placeholder: &str) -> &'a str {
    update.statement.names.get(placeholder).unwrap()
}
