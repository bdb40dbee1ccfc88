//! The headers of a reply, from any HTTP client.

use std::collections::{BTreeMap, HashMap};

/// The headers of a reply. Names are compared without regard to case.
///
/// Implemented for `http::HeaderMap`, and for maps and lists of names and values. A client with a header type
/// of its own implements the one method.
pub trait Headers {
    /// Calls `visit` with the name and the value of each header. A name that is there several times is
    /// visited several times.
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8]));
}

impl<H: Headers + ?Sized> Headers for &H {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        (**self).each(visit);
    }
}

impl Headers for http::HeaderMap {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        self.iter().for_each(|(name, value)| visit(name.as_str(), value.as_bytes()));
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>> Headers for [(K, V)] {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        self.iter().for_each(|(name, value)| visit(name.as_ref(), value.as_ref()));
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>, const N: usize> Headers for [(K, V); N] {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        self.as_slice().each(visit);
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>> Headers for Vec<(K, V)> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        self.as_slice().each(visit);
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>, S> Headers for HashMap<K, V, S> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        self.iter().for_each(|(name, value)| visit(name.as_ref(), value.as_ref()));
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>> Headers for BTreeMap<K, V> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        self.iter().for_each(|(name, value)| visit(name.as_ref(), value.as_ref()));
    }
}

/// The headers of one reply, in one list.
pub(crate) struct HeaderList<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> HeaderList<'a> {
    pub(crate) fn of(headers: &'a (impl Headers + ?Sized)) -> Self {
        let mut list = Vec::new();
        headers.each(&mut |name, value| list.push((name, value)));
        Self(list)
    }

    /// The values of the header `name`, in their order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(headers: &(impl Headers + ?Sized)) -> Vec<&[u8]> {
        HeaderList::of(headers).values("x-ratelimit-limit-requests").collect()
    }

    #[test]
    fn names_compare_without_regard_to_case_in_every_form() {
        const NAME: &str = "X-RateLimit-Limit-Requests";
        let sixty: &[&[u8]] = &[b"60"];
        let mut map = http::HeaderMap::new();
        map.insert(
            http::HeaderName::from_bytes(NAME.as_bytes()).unwrap(),
            http::HeaderValue::from_static("60"),
        );
        assert_eq!(limit(&map), sixty);
        assert_eq!(limit(&[(NAME, "60")]), sixty);
        assert_eq!(limit(&vec![(NAME.to_owned(), "60".to_owned())]), sixty);
        assert_eq!(limit(&HashMap::from([(NAME.to_owned(), "60".to_owned())])), sixty);
        assert_eq!(limit(&&BTreeMap::from([(NAME, b"60")])), sixty);
        let any: &dyn Headers = &map;
        assert_eq!(limit(any), sixty);
    }

    #[test]
    fn all_values_of_a_name_are_there_in_their_order() {
        const NAME: &str = "X-RateLimit-Limit-Requests";
        let twice: &[&[u8]] = &[b"60", b"61"];
        let slice: &[(&str, &str)] = &[("retry-after", "1"), (NAME, "60"), (NAME, "61")];
        assert_eq!(limit(&slice), twice);
        assert_eq!(limit(slice), twice);
        let mut map = http::HeaderMap::new();
        for value in ["60", "61"] {
            map.append("x-ratelimit-limit-requests", http::HeaderValue::from_static(value));
        }
        assert_eq!(limit(&map), twice);
    }

    #[test]
    fn a_header_that_is_not_there_has_no_value() {
        assert!(limit(&http::HeaderMap::new()).is_empty());
        assert!(limit(&[("x-ratelimit-limit-tokens", "60")]).is_empty());
        assert!(limit(&HashMap::<String, String>::new()).is_empty());
    }
}
