//! The page, and the headers for the browser.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

const PAGE: &str = include_str!("page.html");
const NONCE: &str = "{nonce}";

/// The page for a browser without the token. Its link leads back to the dashboard from this site: a browser
/// that came by a link on another site did not send its cookie.
pub(super) const NEEDS_TOKEN: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
    content=\"width=device-width, initial-scale=1\"><title>Sluice</title><p>This dashboard needs its token: add ?token=... to the \
    address once. If this browser has opened the dashboard before: <a href=\"/\">open it again</a>.";

/// Returns the page with this nonce of 128 random bits. A browser runs only scripts that carry the nonce, so
/// injected scripts do not run.
pub(super) fn page(nonce: &str) -> String {
    PAGE.replace(NONCE, nonce)
}

pub(super) fn nonce() -> Result<String, getrandom::Error> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bits)))
}

/// Allows only what the page needs: the script and the style with the nonce, and requests to this server.
pub(super) fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// Adds the headers that every answer gets. An answer that is not a page may load nothing at all.
pub(super) fn protect(headers: &mut HeaderMap) {
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_file_and_takes_nothing_as_html() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "Function(",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        let without_namespaces = PAGE.replace("http://www.w3.org/2000/svg", "");
        for word in [
            "http://",
            "https://",
            "//cdn",
            "@import",
            "url(",
            " style=\"",
            " onclick",
            " onload",
            "javascript:",
        ] {
            assert!(!without_namespaces.contains(word), "{word}");
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        assert_eq!(PAGE.matches(NONCE).count(), 2);
    }

    #[test]
    fn every_page_has_a_nonce_of_its_own_and_the_policy_names_it() {
        let (first, second) = (nonce().unwrap(), nonce().unwrap());
        assert_ne!(first, second);
        assert_eq!(page(&first).matches(&format!("nonce=\"{first}\"")).count(), 2);
        assert!(!policy(&first).contains("unsafe") && policy(&first).contains(&format!("'nonce-{first}'")));
    }
}
