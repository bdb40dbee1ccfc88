//! Protects what is served on loopback: programs of this machine may read it, pages of other sites not.
//!
//! If the name of another site is made to resolve to this machine (DNS rebinding), a script of that site
//! could read what is served here. But the browser sends that name as the host, and the server rejects it.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// Whether only this machine reaches an address.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether this machine serves an endpoint, as in `http://localhost:4566`.
pub(crate) fn is_endpoint(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|url| url.host().is_some_and(is_this_machine))
}

/// Whether a request used a name of this machine: `localhost`, or a loopback address, at any port.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.get(HOST).and_then(|host| host.to_str().ok()).is_some_and(is_this_machine)
}

pub(crate) fn refusal() -> Response {
    (StatusCode::FORBIDDEN, "use the name localhost or a loopback address\n").into_response()
}

/// Guards the routes that are served on the loopback interface.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    if is_asked(request.headers()) { next.run(request).await } else { refusal() }
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_made_to_resolve_here_is_none_of_this_machine() {
        let asked = |host: &str| is_asked(&HeaderMap::from_iter([(HOST, host.parse().unwrap())]));
        for own in [
            "127.0.0.1:8080",
            "localhost:8080",
            "LOCALHOST",
            "[::1]:8080",
            "127.0.0.1",
            "localhost:9000",
            "[::1",
        ] {
            assert!(asked(own), "{own}");
        }
        for other in [
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[evil]:1",
            "10.0.0.1",
        ] {
            assert!(!asked(other), "{other}");
        }
        assert!(!is_asked(&HeaderMap::new()));
    }

    #[test]
    fn an_endpoint_of_this_machine_is_told_from_others() {
        for own in
            ["http://127.0.0.1:4566", "http://localhost:8000/", "https://[::1]:8000", "http://127.0.0.1"]
        {
            assert!(is_endpoint(own), "{own}");
        }
        for other in [
            "https://dynamodb.eu-central-1.amazonaws.com",
            "http://localhost:x@evil.example",
            "http://localhost.evil.example:4566",
            "http://10.0.0.1:4566",
            "/table",
            "",
        ] {
            assert!(!is_endpoint(other), "{other}");
        }
    }
}
