//! What `sluice-http` promises about requests, replies and streams, from real ones.
#![allow(missing_docs, clippy::expect_used)]

mod anthropic;
mod asked;
mod bedrock;
mod bounds;
mod costs;
mod frames;
mod gemini;
mod nonsense;
mod openai_chat;
mod openai_responses;
mod routes;
mod said;
mod usage_asked;
