//! The headers of a reply, from any HTTP client.

use std::collections::{BTreeMap, HashMap};

/// The headers of a reply. Names are compared without regard to case.
///
/// Implemented for `http::HeaderMap`, and for maps and lists of names and values. A client with a header type
/// of its own implements the one method.
pub trait Headers {
    /// The value of the header `name`, which is in lower case. If there are several, the first; `None` if
    /// there is none.
    fn header(&self, name: &str) -> Option<&[u8]>;
}

impl<H: Headers + ?Sized> Headers for &H {
    fn header(&self, name: &str) -> Option<&[u8]> {
        (**self).header(name)
    }
}

impl Headers for http::HeaderMap {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(http::HeaderValue::as_bytes)
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>> Headers for [(K, V)] {
    fn header(&self, name: &str) -> Option<&[u8]> {
        find(self.iter().map(|(key, value)| (key, value)), name)
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>, const N: usize> Headers for [(K, V); N] {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.as_slice().header(name)
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>> Headers for Vec<(K, V)> {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.as_slice().header(name)
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>, S> Headers for HashMap<K, V, S> {
    fn header(&self, name: &str) -> Option<&[u8]> {
        find(self.iter(), name)
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>> Headers for BTreeMap<K, V> {
    fn header(&self, name: &str) -> Option<&[u8]> {
        find(self.iter(), name)
    }
}

fn find<'a, K: AsRef<str> + 'a, V: AsRef<[u8]> + 'a>(
    mut pairs: impl Iterator<Item = (&'a K, &'a V)>,
    name: &str,
) -> Option<&'a [u8]> {
    pairs.find(|(key, _)| key.as_ref().eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(headers: &(impl Headers + ?Sized)) -> Option<&[u8]> {
        headers.header("x-ratelimit-limit-requests")
    }

    #[test]
    fn names_compare_without_regard_to_case_in_every_form() {
        const NAME: &str = "X-RateLimit-Limit-Requests";
        let sixty: Option<&[u8]> = Some(b"60");
        let mut map = http::HeaderMap::new();
        map.insert(http::HeaderName::from_bytes(NAME.as_bytes()).unwrap(), http::HeaderValue::from_static("60"));
        assert_eq!(limit(&map), sixty);
        assert_eq!(limit(&[(NAME, "60")]), sixty);
        assert_eq!(limit(&vec![(NAME.to_owned(), "60".to_owned())]), sixty);
        assert_eq!(limit(&HashMap::from([(NAME.to_owned(), "60".to_owned())])), sixty);
        assert_eq!(limit(&&BTreeMap::from([(NAME, b"60")])), sixty);
        let slice: &[(&str, &str)] = &[("retry-after", "1"), (NAME, "60"), (NAME, "61")];
        assert_eq!(limit(&slice), sixty, "of several, the first");
        assert_eq!(limit(slice), sixty);
        let any: &dyn Headers = &map;
        assert_eq!(limit(any), sixty);
    }

    #[test]
    fn a_header_that_is_not_there_is_none() {
        assert_eq!(limit(&http::HeaderMap::new()), None);
        assert_eq!(limit(&[("x-ratelimit-limit-tokens", "60")]), None);
        assert_eq!(limit(&HashMap::<String, String>::new()), None);
    }
}
