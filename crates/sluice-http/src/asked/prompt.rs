//! Counts the text of a prompt, at any depth, without a copy of it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The tokens counted so far.
pub(super) struct Prompt<'c> {
    pub(super) tokens: u64,
    /// What one image, recording or file counts as.
    pub(super) media_tokens: u64,
    pub(super) count: &'c mut dyn FnMut(&str) -> u64,
}

impl Prompt<'_> {
    fn add(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
    }

    fn add_text(&mut self, text: &str, field: Field) {
        let tokens = match field {
            Field::Opaque => 0,
            Field::Media if is_media(text) => self.media_tokens,
            _ if is_data_url(text) => self.media_tokens,
            Field::Media | Field::Text => (self.count)(text),
        };
        self.add(tokens);
    }
}

/// What the text in a field is.
#[derive(Clone, Copy)]
enum Field {
    Text,
    /// It may be an image, a recording or a file, as base64 or by its address.
    Media,
    /// A signature, or reasoning that only the vendor can read.
    Opaque,
}

impl Field {
    fn of(name: &str) -> Self {
        match name {
            "data" | "bytes" | "url" | "image_url" | "file_url" | "file_data" | "fileUri" | "file_uri"
            | "uri" => Self::Media,
            "signature" | "thoughtSignature" | "thought_signature" | "encrypted_content" => Self::Opaque,
            _ => Self::Text,
        }
    }
}

fn is_data_url(text: &str) -> bool {
    let content = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    content.is_some_and(|(kind, content)| kind.len() <= 128 && is_base64(content))
}

/// An address, or base64: a plain text in the same field has spaces, or is short.
fn is_media(text: &str) -> bool {
    const SHORTEST: usize = 64;
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    matches!(scheme, Some("https" | "http" | "gs" | "s3")) || (text.len() >= SHORTEST && is_base64(text))
}

fn is_base64(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(&byte))
}

/// Counts one value and all below it.
pub(super) struct Text<'a, 'c> {
    prompt: &'a mut Prompt<'c>,
    field: Field,
}

impl<'a, 'c> Text<'a, 'c> {
    pub(super) fn of(prompt: &'a mut Prompt<'c>) -> Self {
        Self { prompt, field: Field::Text }
    }
}

impl<'de> DeserializeSeed<'de> for Text<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.prompt.add_text(text, self.field);
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.prompt.add(1);
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.prompt.add(1);
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.prompt.add(1);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Text { prompt: &mut *self.prompt, field: self.field })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Name(&mut *self.prompt))? {
            map.next_value_seed(Text { prompt: &mut *self.prompt, field })?;
        }
        Ok(())
    }
}

/// Counts the name of a field, and tells what its text is.
struct Name<'a, 'c>(&'a mut Prompt<'c>);

impl<'de> DeserializeSeed<'de> for Name<'_, '_> {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_, '_> {
    type Value = Field;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Field, E> {
        self.0.add_text(name, Field::Text);
        Ok(Field::of(name))
    }
}
