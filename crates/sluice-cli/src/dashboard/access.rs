//! Decides who may see the page.
//!
//! On the loopback interface, anybody on this machine may see it, but no page of another site. On other
//! interfaces, only those who know the token may. A user gives the token once, in the address; after that it
//! is in a cookie that scripts cannot read and that pages of other sites do not send.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderValue};

use crate::failure::Failure;
use crate::loopback;

/// The secret that a reader of the page must know.
#[derive(Clone)]
pub(super) struct Token(String);

/// The shortest token: this many random letters and digits cannot be guessed over a network.
const SHORTEST: usize = 16;
const NAME: &str = "sluice_dashboard";
/// How long the cookie is kept: thirty days, in seconds.
const KEPT_SECS: u32 = 30 * 24 * 60 * 60;

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Only characters that an address and a cookie carry unchanged.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if text.len() < SHORTEST {
            Err(format!("a token must have {SHORTEST} characters at least; `openssl rand -hex 16` makes one"))
        } else if !text.bytes().all(is_plain) {
            Err("a token may contain only letters, digits and - . _ ~; `openssl rand -hex 16` makes one"
                .into())
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

impl Token {
    /// Compares the whole token, however early it differs: the time reveals only the length.
    pub(super) fn is(&self, given: &str) -> bool {
        let differing =
            self.0.bytes().zip(given.bytes()).fold(0, |seen, (ours, theirs)| seen | (ours ^ theirs));
        (std::hint::black_box(differing) == 0) & (self.0.len() == given.len())
    }
}

/// Hides the token's text from logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The conditions that a request must meet.
#[derive(Debug)]
pub(super) struct Access {
    token: Option<Token>,
    is_loopback: bool,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The request used a name that is not this machine's.
    Host,
    Token,
}

impl Access {
    /// The conditions for a server at `address`.
    pub(super) fn new(token: Option<Token>, address: SocketAddr) -> Result<Self, Failure> {
        let is_loopback = loopback::is_loopback(address.ip());
        if token.is_none() && !is_loopback {
            return Err(Failure::new(format!(
                "{address} can be reached from other machines, so it needs a token of {SHORTEST} characters at least: set \
                 SLUICE_DASHBOARD_TOKEN, or listen on 127.0.0.1"
            )));
        }
        Ok(Self { token, is_loopback })
    }

    pub(super) const fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether a request may be answered; `asked` is the token in its address.
    pub(super) fn check(&self, headers: &HeaderMap, asked: Option<&str>) -> Result<(), Refused> {
        if self.is_loopback && !loopback::is_asked(headers) {
            return Err(Refused::Host);
        }
        let Some(token) = &self.token else { return Ok(()) };
        let known = [asked, bearer(headers)].into_iter().flatten().chain(cookies(headers));
        // Every token is compared, even after a match.
        let is_right = known.fold(false, |is_right, given| is_right | token.is(given));
        if is_right { Ok(()) } else { Err(Refused::Token) }
    }

    /// The cookie for a request whose address contained the token.
    pub(super) fn cookie(&self, asked: Option<&str>) -> Option<HeaderValue> {
        let token = self.token.as_ref().filter(|token| asked.is_some_and(|asked| token.is(asked)))?;
        let text = format!("{NAME}={}; Path=/; Max-Age={KEPT_SECS}; HttpOnly; SameSite=Strict", token.0);
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "0123456789abcdef";

    fn access(address: &str, token: Option<&str>) -> Result<Access, Failure> {
        Access::new(token.map(|token| token.parse().unwrap()), address.parse().unwrap())
    }

    fn headers<const N: usize>(pairs: [(&'static str, &str); N]) -> HeaderMap {
        pairs.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn what_other_machines_reach_needs_a_token() {
        for open in ["0.0.0.0:80", "[::]:80", "192.168.1.2:80", "[::ffff:10.0.0.1]:80"] {
            assert!(access(open, None).unwrap_err().to_string().contains("SLUICE_DASHBOARD_TOKEN"), "{open}");
            assert!(access(open, Some(RIGHT)).unwrap().needs_token());
        }
        for own in ["127.0.0.1:80", "[::1]:80", "127.9.9.9:80", "[::ffff:127.0.0.1]:80"] {
            assert!(!access(own, None).unwrap().needs_token(), "{own}");
        }
    }

    #[test]
    fn a_token_is_long_and_plain() {
        for (text, says) in [
            ("short", "16 characters"),
            ("0123456789abcde", "16 characters"),
            ("0123456789abcdef;", "letters, digits"),
            ("0123456789 abcdef", "letters, digits"),
            ("0123456789+abcdef", "letters, digits"),
        ] {
            assert!(text.parse::<Token>().unwrap_err().contains(says), "{text}");
        }
        let token: Token = RIGHT.parse().unwrap();
        assert!(token.is(RIGHT));
        for wrong in ["", "0", "0123456789abcde", "0123456789abcdeg", "0123456789abcdef0", "1123456789abcdef"]
        {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert!(!format!("{token:?}").contains(RIGHT), "a token is in no log");
    }

    #[test]
    fn the_token_is_taken_from_address_header_or_cookie() {
        let access = access("0.0.0.0:80", Some(RIGHT)).unwrap();
        let any_host = ("host", "dashboards.example");
        let cookie = format!("theme=dark; {NAME}={RIGHT}");
        let (bearer, wrong) = (format!("Bearer {RIGHT}"), format!("Basic {RIGHT}"));
        assert_eq!(access.check(&headers([any_host]), Some(RIGHT)), Ok(()));
        assert_eq!(access.check(&headers([any_host, ("authorization", &bearer)]), None), Ok(()));
        assert_eq!(access.check(&headers([any_host, ("cookie", &cookie)]), None), Ok(()));
        for other in [
            headers([any_host]),
            headers([any_host, ("authorization", &wrong)]),
            headers([any_host, ("cookie", &cookie[..cookie.len() - 1])]),
            headers([any_host, ("cookie", &format!("other={RIGHT}"))]),
        ] {
            assert_eq!(access.check(&other, None), Err(Refused::Token), "{other:?}");
            assert_eq!(access.check(&other, Some("0123456789abcdeX")), Err(Refused::Token));
        }
        let cookie = access.cookie(Some(RIGHT)).unwrap();
        for part in ["HttpOnly", "SameSite=Strict", RIGHT] {
            assert!(cookie.to_str().unwrap().contains(part));
        }
        assert_eq!((access.cookie(None), access.cookie(Some("wrong"))), (None, None));
    }

    #[test]
    fn a_name_that_was_made_to_resolve_here_is_refused() {
        let access = access("127.0.0.1:8080", None).unwrap();
        assert_eq!(access.check(&headers([("host", "localhost:8080")]), None), Ok(()));
        assert_eq!(access.check(&headers([("host", "evil.example:8080")]), None), Err(Refused::Host));
        assert_eq!(access.check(&HeaderMap::new(), None), Err(Refused::Host));
    }
}
