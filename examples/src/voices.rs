//! A vendor of speech that limits calls at once, as ElevenLabs does.

use std::time::Duration;

use http::{Response, StatusCode};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// A vendor that counts the calls that run.
#[derive(Debug)]
pub struct Voices {
    plan: i32,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    running: i32,
    peak: i32,
    refused: i32,
}

impl Voices {
    /// A vendor that runs so many calls at once.
    #[must_use]
    pub fn new(plan: i32) -> Self {
        Self { plan, calls: Mutex::default() }
    }

    /// Text to speech. The reply says how many calls run, and how many may.
    pub async fn speak(&self, text: &str) -> Response<Vec<u8>> {
        let running = {
            let mut calls = self.calls.lock().await;
            if calls.running >= self.plan {
                calls.refused += 1;
                let error =
                    br#"{"detail": {"status": "too_many_concurrent_requests", "message": "Too many calls"}}"#;
                return self.reply(StatusCode::TOO_MANY_REQUESTS, calls.running, error.to_vec());
            }
            calls.running += 1;
            calls.peak = calls.peak.max(calls.running);
            calls.running
        };
        sleep(Duration::from_millis(30 + text.len() as u64)).await;
        self.calls.lock().await.running -= 1;
        self.reply(StatusCode::OK, running, text.as_bytes().to_vec())
    }

    /// The most calls that ran at once.
    pub async fn peak(&self) -> i32 {
        self.calls.lock().await.peak
    }

    /// How many calls the vendor has refused.
    pub async fn refused(&self) -> i32 {
        self.calls.lock().await.refused
    }

    fn reply(&self, status: StatusCode, running: i32, body: Vec<u8>) -> Response<Vec<u8>> {
        let mut reply = Response::new(body);
        *reply.status_mut() = status;
        reply.headers_mut().insert("current-concurrent-requests", running.into());
        reply.headers_mut().insert("maximum-concurrent-requests", self.plan.into());
        reply
    }
}
