//! One row of a table, and just enough of DynamoDB's expressions to apply the statements of a rate bucket to
//! it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sluice_core::schema::{Field, KEY, Row};
use sluice_core::{Amount, Bucket, Dimension, Operand, Update};

/// A row, or a map in one.
#[derive(Clone, Debug)]
pub(crate) struct Item(BTreeMap<String, Operand>);

type Entries = [(Cow<'static, str>, Operand)];

fn map_of(entries: &Entries) -> Item {
    Item(entries.iter().map(|(name, value)| (name.to_string(), value.clone())).collect())
}

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(|value| match value {
            Operand::Text(text) => Field::Text(text),
            Operand::Number(text) => Field::Number(text),
            Operand::Map(_) => Field::Other,
        })
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let Some(Operand::Map(entries)) = self.0.get(name) else { return false };
        for (name, value) in entries {
            match value {
                Operand::Map(entry) => visit(name, Some(&map_of(entry))),
                _ => visit(name, None),
            }
        }
        true
    }
}

impl Item {
    /// The value at a path of placeholders.
    fn at(&self, update: &Update, path: &str) -> Option<Operand> {
        match path.split_once('.') {
            None => self.0.get(attribute(update, path)).cloned(),
            Some((first, rest)) => match self.0.get(attribute(update, first))? {
                Operand::Map(entries) => map_of(entries).at(update, rest),
                other => panic!("{other:?} has no entries"),
            },
        }
    }

    /// Sets the value at a path, or removes it. DynamoDB rejects a path through a map that is not there.
    fn set(&mut self, update: &Update, path: &str, value: Option<Operand>) {
        let Some((first, rest)) = path.split_once('.') else {
            let name = attribute(update, path).to_owned();
            match value {
                Some(value) => drop(self.0.insert(name, value)),
                None => drop(self.0.remove(&name)),
            }
            return;
        };
        let name = attribute(update, first);
        let Some(Operand::Map(entries)) = self.0.get(name) else { panic!("the path {path} is invalid") };
        let mut inner = map_of(entries);
        inner.set(update, rest, value);
        let entries: Vec<_> = inner.0.into_iter().map(|(name, value)| (Cow::Owned(name), value)).collect();
        self.0.insert(name.to_owned(), Operand::Map(entries.into()));
    }

    /// The row of a put.
    pub(crate) fn put_of(put: sluice_core::Put) -> Self {
        Self(put.item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    pub(crate) fn of(bucket: &Bucket) -> Self {
        Self::put_of(bucket.create())
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
            b'#' => match self.at(update, term)? {
                Operand::Number(text) => text,
                other => panic!("{other:?}"),
            },
            _ => panic!("{term}"),
        };
        Some(text.parse::<Amount>().unwrap().micros())
    }

    /// Clauses joined by AND, each a comparison or several in parentheses joined by OR.
    pub(crate) fn holds(&self, update: &Update) -> bool {
        let clauses = split(&update.statement.condition, " AND ");
        let bare = |clause: &str| {
            clause.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).map(str::to_owned)
        };
        clauses.iter().all(|clause| match bare(clause) {
            Some(inner) => split(&inner, " OR ").iter().any(|one| self.compares(update, one)),
            None => self.compares(update, clause),
        })
    }

    fn compares(&self, update: &Update, comparison: &str) -> bool {
        if let Some(name) =
            comparison.strip_prefix("attribute_not_exists(").and_then(|rest| rest.strip_suffix(')'))
        {
            return self.at(update, name).is_none();
        }
        if let Some(name) =
            comparison.strip_prefix("attribute_exists(").and_then(|rest| rest.strip_suffix(')'))
        {
            return self.at(update, name).is_some();
        }
        let words: Vec<&str> = comparison.split(' ').collect();
        // A comparison with what is not there is false.
        let value = |term| self.number(update, term);
        let (Some(left), Some(right)) = (value(words[0]), value(words[2])) else { return false };
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
        let (set, remove) = match update.statement.update.split_once(" REMOVE ") {
            Some((set, remove)) => (set, Some(remove)),
            None => (&*update.statement.update, None),
        };
        for clause in split(set.strip_prefix("SET ").unwrap(), ", ") {
            let (target, sum) = clause.split_once(" = ").unwrap();
            let value = |term: &str| match term
                .strip_prefix("if_not_exists(")
                .and_then(|rest| rest.strip_suffix(')'))
            {
                Some(pair) => {
                    let (name, other) = pair.split_once(", ").unwrap();
                    before.number(update, name).unwrap_or_else(|| before.number(update, other).unwrap())
                }
                None => before.number(update, term).unwrap(),
            };
            let number = |micros| Operand::Number(Amount::from_micros(micros).to_string());
            let result = match (sum.split_once(" + "), sum.split_once(" - ")) {
                (Some((left, right)), _) => number(value(left) + value(right)),
                (_, Some((left, right))) => number(value(left) - value(right)),
                _ => update.values.iter().find(|(name, _)| *name == sum).unwrap().1.clone(),
            };
            self.set(update, target, Some(result));
        }
        for path in remove.into_iter().flat_map(|remove| remove.split(", ")) {
            self.set(update, path, None);
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
