/// Parses "5s", "1m 30s", "250ms".
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; it must be a time, as in 5s, 250ms or 1m"))
}
