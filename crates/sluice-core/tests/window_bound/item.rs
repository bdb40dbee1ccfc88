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

    /// Writes a number, as a client in another language does.
    pub(crate) fn put(&mut self, name: &str, number: String) {
        self.0.insert(name.to_owned(), Operand::Number(number));
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

    /// Clauses joined by AND, each a comparison or several in parentheses joined by OR.
    pub(crate) fn holds(&self, update: &Update) -> bool {
        let clauses = split(&update.statement.condition, " AND ");
        let bare = |clause: &str| clause.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).map(str::to_owned);
        clauses.iter().all(|clause| match bare(clause) {
            Some(inner) => split(&inner, " OR ").iter().any(|one| self.compares(update, one)),
            None => self.compares(update, clause),
        })
    }

    fn compares(&self, update: &Update, comparison: &str) -> bool {
        if let Some(name) = comparison.strip_prefix("attribute_not_exists(").and_then(|rest| rest.strip_suffix(')')) {
            return self.field(attribute(update, name)).is_none();
        }
        let words: Vec<&str> = comparison.split(' ').collect();
        let value = |term| self.number(update, term).unwrap();
        let (left, right) = (value(words[0]), value(words[2]));
        match words[1] {
            "=" => left == right,
            "<>" => left != right,
            ">" => left > right,
            "<" => left < right,
            ">=" => left >= right,
            "<=" => left <= right,
            other => panic!("{other}"),
        }
    }

    pub(crate) fn apply(&mut self, update: &Update) -> bool {
        if !self.holds(update) {
            return false;
        }
        let before = self.clone();
        for clause in split(update.statement.update.strip_prefix("SET ").unwrap(), ", ") {
            let (target, sum) = clause.split_once(" = ").unwrap();
            let value = |term: &str| match term.strip_prefix("if_not_exists(").and_then(|rest| rest.strip_suffix(')')) {
                Some(pair) => {
                    let (name, other) = pair.split_once(", ").unwrap();
                    before.number(update, name).unwrap_or_else(|| before.number(update, other).unwrap())
                }
                None => before.number(update, term).unwrap(),
            };
            let number = match (sum.split_once(" + "), sum.split_once(" - ")) {
                (Some((left, right)), _) => value(left) + value(right),
                (_, Some((left, right))) => value(left) - value(right),
                _ => value(sum),
            };
            let text = Amount::from_micros(number).to_string();
            self.0.insert(attribute(update, target).to_owned(), Operand::Number(text));
        }
        true
    }
}

/// The parts between separators that stand outside all parentheses.
fn split(text: &str, separator: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for piece in text.split(separator) {
        let last = parts.last_mut().unwrap();
        let depth = |text: &str| text.matches('(').count() - text.matches(')').count();
        if last.is_empty() {
            *last = piece.to_owned();
        } else if depth(last) > 0 {
            last.push_str(separator);
            last.push_str(piece);
        } else {
            parts.push(piece.to_owned());
        }
    }
    parts
}

fn attribute<'a>(update: &'a Update, placeholder: &str) -> &'a str {
    update.statement.names.get(placeholder).unwrap()
}
