//! What vendors say is read as they document it, and nonsense is read as nothing.
#![allow(missing_docs, clippy::unwrap_used)]

mod anthropic;
mod any_vendor;
mod azure;
mod document;
mod elevenlabs;
mod gemini;
mod groq;
mod nonsense;
mod openai;
mod profiles;
mod refusals;
mod replies;
mod said;
mod waits;
