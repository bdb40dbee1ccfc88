//! Which bodies of requests are read before they are sent.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method, Uri};

use crate::api::Route;

/// The longest body that is read before it is sent: more than vendors take (Anthropic 32 MB,
/// <https://docs.anthropic.com/en/api/overview>).
const MAX_REQUEST_LEN: u64 = 64 * 1_024 * 1_024;

/// Whether the body says what the call will cost, and is complete without the reply. `at_most` bounds its
/// length, if that is known.
pub(crate) fn is_readable(method: &Method, uri: &Uri, headers: &HeaderMap, at_most: Option<u64>) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_json = content_type
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    let is_plain = !headers.contains_key(CONTENT_ENCODING);
    // A stream of unknown length may depend on the reply, or never end.
    let is_short = at_most.is_some_and(|length| length <= MAX_REQUEST_LEN);
    is_json && is_plain && is_short && Route::of(method, uri.path()).is_some()
}
