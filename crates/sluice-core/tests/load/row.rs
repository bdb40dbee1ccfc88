//! A load row, as sweeps write it.

use std::collections::BTreeMap;

use sluice_core::schema::{Field, Row, SEQUENCE};
use sluice_core::{Dimension, Load, Measured, Operand, PreviousLoad, Sample, Update};

#[derive(Clone, Debug, Default)]
pub(crate) struct Item(pub(crate) BTreeMap<String, Operand>);

impl Row for Item {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(|value| match value {
            Operand::Text(text) => Field::Text(text),
            Operand::Number(text) => Field::Number(text),
            _ => Field::Other,
        })
    }
}

pub(crate) fn dimension() -> Dimension {
    Dimension::new("elevenlabs#concurrent").unwrap()
}

impl Item {
    pub(crate) fn before(&self) -> PreviousLoad {
        PreviousLoad::read(&dimension(), (!self.0.is_empty()).then_some(self))
    }

    pub(crate) fn load(&self) -> Load {
        Load::read(&dimension(), self).unwrap()
    }

    /// Measures, and writes.
    pub(crate) fn sweep(&mut self, sample: &Sample) -> Option<Measured> {
        let measured = self.before().measure(sample)?;
        assert!(self.apply(&measured.update));
        assert_eq!(self.load(), measured.load, "what is written reads back");
        Some(measured)
    }

    /// Whether the condition held. It compares the sequence, or asks that there is none.
    pub(crate) fn apply(&mut self, update: &Update) -> bool {
        let value = |name: &str| {
            update.values.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        };
        let holds = match value(":read_sequence") {
            Some(seen) => self.0.get(SEQUENCE) == Some(&seen),
            None => !matches!(self.0.get(SEQUENCE), Some(Operand::Number(_))),
        };
        if holds {
            for part in update.statement.update.strip_prefix("SET ").unwrap().split(", ") {
                let (name, placeholder) = part.split_once(" = ").unwrap();
                let name = update.statement.names.get(name).unwrap();
                self.0.insert(name.to_owned(), value(placeholder).unwrap());
            }
        }
        holds
    }
}
