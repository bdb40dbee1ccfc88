//! One row of a table, and just enough of DynamoDB's expressions to apply the writes on inline leases to it.

use std::collections::BTreeMap;

use sluice_core::schema::{Field, LEASES, Row, TOKENS};
use sluice_core::{Amount, Bucket, Dimension, Operand, Update};

type Map = BTreeMap<String, Operand>;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item(pub(crate) Map);

struct Entry<'a>(&'a [(std::borrow::Cow<'static, str>, Operand)]);

fn field(value: &Operand) -> Field<'_> {
    match value {
        Operand::Text(text) => Field::Text(text),
        Operand::Number(text) => Field::Number(text),
        _ => Field::Other,
    }
}

impl Row for Entry<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| field(value))
    }
}

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(field)
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let Some(Operand::Map(entries)) = self.0.get(name) else { return false };
        for (id, value) in entries {
            match value {
                Operand::Map(entry) => visit(id, Some(&Entry(entry))),
                _ => visit(id, None),
            }
        }
        true
    }
}

pub(crate) fn name() -> Dimension {
    Dimension::new("elevenlabs#concurrent").unwrap()
}

impl Item {
    pub(crate) fn of(bucket: &Bucket) -> Self {
        Self(bucket.create().item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    pub(crate) fn bucket(&self) -> Bucket {
        Bucket::read(&name(), self).unwrap()
    }

    pub(crate) fn number(&self, name: &str) -> Amount {
        match self.0.get(name) {
            Some(Operand::Number(text)) => text.parse().unwrap(),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(crate) fn set_number(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), Operand::Number(value.to_string()));
    }

    /// The write of a client that knows nothing of leases.
    pub(crate) fn add_tokens(&mut self, amount: Amount) {
        self.set_number(TOKENS, self.number(TOKENS).plus(amount));
    }

    /// Puts an entry into the map of leases, which is made where there is none.
    pub(crate) fn put_lease(&mut self, id: &str, entry: Operand) {
        let mut leases = match self.0.remove(LEASES) {
            Some(Operand::Map(leases)) => leases.into_vec(),
            _ => Vec::new(),
        };
        leases.retain(|(other, _)| other != id);
        leases.push((id.to_owned().into(), entry));
        self.0.insert(LEASES.to_owned(), Operand::Map(leases.into()));
    }

    /// Applies a write if its condition holds.
    pub(crate) fn apply(&mut self, update: &Update) -> bool {
        every_placeholder_is_used(update);
        let holds = self.is_as_asked(update);
        if holds {
            self.change(update);
        }
        holds
    }

    /// Whether the condition of a write holds.
    pub(crate) fn is_as_asked(&self, update: &Update) -> bool {
        split(&update.statement.condition, " AND ").all(|term| self.holds(update, term))
    }

    fn holds(&self, update: &Update, term: &str) -> bool {
        if let Some(either) = term.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            return either.split(" OR ").any(|term| self.holds(update, term));
        }
        let argument = |function: &str| term.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(path) = argument("attribute_exists") {
            return self.at(update, path).is_some();
        }
        if let Some(path) = argument("attribute_not_exists") {
            return self.at(update, path).is_none();
        }
        let words: Vec<&str> = term.split(' ').collect();
        let [path, operator, value] = words[..] else { panic!("{term}") };
        let value = sent(update, value);
        match (self.at(update, path), value) {
            (Some(Operand::Text(one)), Operand::Text(other)) => operator == "=" && one == *other,
            (Some(Operand::Number(one)), Operand::Number(other)) => {
                let (one, other): (Amount, Amount) = (one.parse().unwrap(), other.parse().unwrap());
                match operator {
                    "=" => one == other,
                    "<" => one < other,
                    "<=" => one <= other,
                    ">=" => one >= other,
                    ">" => one > other,
                    _ => panic!("{term}"),
                }
            }
            (None, _) => false,
            // As DynamoDB compares maps: in no order.
            (Some(one @ Operand::Map(_)), other @ Operand::Map(_)) => {
                operator == "=" && sorted(&one) == sorted(other)
            }
            other => panic!("{term}: {other:?}"),
        }
    }

    /// What stands at a path.
    fn at(&self, update: &Update, path: &str) -> Option<Operand> {
        let mut steps = path.split('.').map(|step| update.statement.names.get(step).unwrap());
        let mut value = self.0.get(steps.next().unwrap())?.clone();
        for step in steps {
            let Operand::Map(entries) = value else { return None };
            value = entries.iter().find(|(name, _)| name == step)?.1.clone();
        }
        Some(value)
    }

    fn change(&mut self, update: &Update) {
        let before = self.clone();
        let text = &update.statement.update;
        let (set, remove) = match text.strip_prefix("REMOVE ") {
            Some(remove) => (None, remove),
            None => {
                let (set, remove) = text.split_once(" REMOVE ").unwrap_or((text, ""));
                (Some(set.strip_prefix("SET ").unwrap()), remove)
            }
        };
        let mut touched = Vec::new();
        for clause in set.into_iter().flat_map(|set| split(set, ", ")) {
            let (path, value) = clause.split_once(" = ").unwrap();
            touched.push(path);
            self.set(update, path, before.computed(update, value));
        }
        for path in remove.split(", ").filter(|path| !path.is_empty()) {
            touched.push(path);
            let Some((map, id)) = path.split_once('.') else {
                self.0.remove(update.statement.names.get(path).unwrap());
                continue;
            };
            let Some(Operand::Map(entries)) = self.0.get_mut(update.statement.names.get(map).unwrap()) else {
                panic!("{path} leads nowhere")
            };
            let id = update.statement.names.get(id).unwrap();
            *entries = std::mem::take(entries).into_iter().filter(|(name, _)| name != id).collect();
        }
        let distinct: std::collections::BTreeSet<_> = touched.iter().collect();
        assert_eq!(distinct.len(), touched.len(), "paths overlap: {touched:?}");
    }

    fn set(&mut self, update: &Update, path: &str, value: Operand) {
        let named = |step| update.statement.names.get(step).unwrap().to_owned();
        let steps: Vec<String> = path.split('.').map(named).collect();
        match &steps[..] {
            [attribute] => {
                self.0.insert(attribute.clone(), value);
            }
            [map, id] => {
                assert!(
                    matches!(self.0.get(map), Some(Operand::Map(_))),
                    "a path that leads nowhere is an error"
                );
                assert_eq!(map, LEASES);
                self.put_lease(id, value);
            }
            [map, id, part] => {
                let Some(Operand::Map(entries)) = self.0.get_mut(map) else { panic!("{path} leads nowhere") };
                let Some((_, Operand::Map(lease))) = entries.iter_mut().find(|(name, _)| name == id) else {
                    panic!()
                };
                lease.iter_mut().find(|(name, _)| name == part).unwrap().1 = value;
            }
            _ => panic!("{path}"),
        }
    }

    fn computed(&self, update: &Update, value: &str) -> Operand {
        let term = |term: &str| match term.strip_prefix("if_not_exists(") {
            Some(rest) => {
                let (path, otherwise) = rest.strip_suffix(')').unwrap().split_once(", ").unwrap();
                self.at(update, path).unwrap_or_else(|| sent(update, otherwise).clone())
            }
            None if term.starts_with('#') => self.at(update, term).unwrap(),
            None => sent(update, term).clone(),
        };
        let words: Vec<&str> = value.split(' ').collect();
        let at = words.iter().position(|word| matches!(*word, "+" | "-"));
        let Some(at) = at else { return term(value) };
        match (term(&words[..at].join(" ")), term(&words[at + 1..].join(" "))) {
            (Operand::Number(one), Operand::Number(other)) => {
                let (one, other): (Amount, Amount) = (one.parse().unwrap(), other.parse().unwrap());
                Operand::Number(if words[at] == "+" { one.plus(other) } else { one.minus(other) }.to_string())
            }
            other => panic!("{value}: {other:?}"),
        }
    }
}

fn sorted(value: &Operand) -> Operand {
    let Operand::Map(entries) = value else { return value.clone() };
    let mut entries: Vec<_> = entries.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Operand::Map(entries.into())
}

fn sent<'a>(update: &'a Update, placeholder: &str) -> &'a Operand {
    &update.values.iter().find(|(name, _)| *name == placeholder).unwrap().1
}

/// Splits outside of parentheses.
fn split<'a>(text: &'a str, separator: &'a str) -> impl Iterator<Item = &'a str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let depth = |end: usize| text[..end].matches('(').count() - text[..end].matches(')').count();
        match text.match_indices(separator).find(|(at, _)| depth(*at) == 0) {
            Some((at, _)) => {
                rest = Some(&text[at + separator.len()..]);
                Some(&text[..at])
            }
            None => rest.take(),
        }
    })
}

/// DynamoDB refuses a request that defines one and does not use it, or the other way round.
fn every_placeholder_is_used(update: &Update) {
    let both = format!("{} {}", update.statement.update, update.statement.condition);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '#' | ':' | '_');
    let words = both.split(|c| !is_part(c)).filter(|word| word.starts_with(['#', ':']));
    let mut used: Vec<String> = words.map(str::to_owned).collect();
    let names = update.statement.names.iter().map(|(name, _)| name);
    let mut defined: Vec<String> =
        names.chain(update.values.iter().map(|(name, _)| (*name).to_owned())).collect();
    used.sort_unstable();
    used.dedup();
    defined.sort_unstable();
    assert_eq!(used, defined, "{both}");
}
