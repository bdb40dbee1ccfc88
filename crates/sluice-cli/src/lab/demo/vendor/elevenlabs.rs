//! Like ElevenLabs: a limit on calls at once, and a time when it is busy. Its 429s state which of the two.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::answers::{Answer, Answers};
use super::waits::Waits;
use super::{Call, UnderWay, VendorReply, headers, locked, retry_after, takes};
use crate::lab::demo::limits::ELEVENLABS_AT_ONCE;

/// How long the vendor is busy.
pub(crate) const BUSY: Duration = Duration::from_millis(1_500);
/// The shortest and the longest time of a call, in milliseconds.
const CALL_MILLIS: (u64, u64) = (500, 900);

#[derive(Debug)]
pub(crate) struct Books {
    busy_at: Instant,
    under_way: u32,
    peak: u32,
    taken: usize,
    /// When the vendor rejected a call as one too many at once.
    too_many: Vec<Instant>,
    busy: Waits,
    pub(super) answers: Answers,
}

impl Books {
    pub(super) fn new(busy_at: Instant) -> Self {
        Self {
            busy_at,
            under_way: 0,
            peak: 0,
            taken: 0,
            too_many: Vec::new(),
            busy: Waits::default(),
            answers: Answers::default(),
        }
    }

    fn judge(&mut self, now: Instant) -> Result<(), (HeaderMap, &'static str)> {
        self.busy.came(now);
        let judged = self.accept(now);
        self.answers.note(now, if judged.is_ok() { Answer::Taken } else { Answer::Refused });
        judged
    }

    fn accept(&mut self, now: Instant) -> Result<(), (HeaderMap, &'static str)> {
        let mut headers = self.headers();
        if now >= self.busy_at && now < self.busy_at + BUSY {
            let wait = retry_after(&mut headers, self.busy_at + BUSY - now);
            self.busy.asked(now, wait);
            return Err((headers, r#"{"detail":{"status":"system_busy","message":"high traffic"}}"#));
        }
        if self.under_way >= ELEVENLABS_AT_ONCE {
            self.too_many.push(now);
            return Err((headers, r#"{"detail":{"status":"too_many_concurrent_requests"}}"#));
        }
        self.under_way += 1;
        self.peak = self.peak.max(self.under_way);
        self.taken += 1;
        Ok(())
    }

    fn headers(&self) -> HeaderMap {
        headers([
            ("current-concurrent-requests", self.under_way.to_string()),
            ("maximum-concurrent-requests", ELEVENLABS_AT_ONCE.to_string()),
        ])
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn concurrency(&self) -> (u32, u32) {
        (self.under_way, self.peak)
    }

    /// When a call came that was one too many at once.
    pub(crate) fn too_many(&self) -> &[Instant] {
        &self.too_many
    }

    pub(crate) fn busy(&self) -> &Waits {
        &self.busy
    }
}

pub(super) async fn answer(State(books): State<super::Books<Books>>, Json(_): Json<Call>) -> VendorReply {
    let judged = locked(&books).judge(Instant::now());
    if let Err((headers, body)) = judged {
        return (StatusCode::TOO_MANY_REQUESTS, headers, body);
    }
    let under_way = UnderWay(Arc::clone(&books), |books| books.under_way -= 1);
    takes(CALL_MILLIS).await;
    let headers = locked(&books).headers();
    drop(under_way);
    (StatusCode::OK, headers, "done")
}
