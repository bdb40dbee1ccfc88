//! One call: its request, then its reply.

use http::{HeaderMap, Method, StatusCode};

use crate::api::{Api, Route};
use crate::asked::Asked;
use crate::reply::ReplyReader;
use crate::usage_asked::with_usage_asked;

/// One call to a vendor, as its request describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    api: Option<Api>,
    asked: Asked,
}

impl Exchange {
    /// Reads a request. The host does not matter, and `path` may have a query.
    #[must_use]
    pub fn of(method: &Method, path: &str, body: &[u8]) -> Self {
        Route::of(method, path).map_or_else(Self::unknown, |route| Self::on(&route, Asked::of(&route, body)))
    }

    /// An exchange whose request was read by other means, for example with the model's own tokenizer
    /// ([`Asked::counted`]).
    #[must_use]
    pub const fn on(route: &Route, asked: Asked) -> Self {
        Self { api: Some(route.api), asked }
    }

    fn unknown() -> Self {
        Self { api: None, asked: Asked::default() }
    }

    /// The API. `None` if the path is not one of the known ones: what the call costs is not known then,
    /// beyond one request.
    #[must_use]
    pub const fn api(&self) -> Option<Api> {
        self.api
    }

    /// What the request asks for.
    #[must_use]
    pub const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// The body with which the stream will state its usage: see [`with_usage_asked()`]. `None` if the request
    /// can go as it is.
    #[must_use]
    pub fn with_usage_asked(&self, body: &[u8]) -> Option<Vec<u8>> {
        (self.api == Some(Api::ChatCompletions) && self.asked.stream)
            .then(|| with_usage_asked(body))
            .flatten()
    }

    /// Begins to read the reply, by its status and headers.
    ///
    /// The body must be passed decoded. If the headers still name a `Content-Encoding`, nothing is read.
    #[must_use]
    pub fn reply(&self, status: StatusCode, headers: &HeaderMap) -> ReplyReader {
        ReplyReader::new(self.api, self.asked.stream, status, headers)
    }
}
