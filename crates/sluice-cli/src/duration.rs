/// Parses a time, as the settings do: "5s", "1m 30s", "250ms", or plain seconds.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    sluice_table::duration(text)
        .ok_or_else(|| "it must be a time of at most a year, as in 5s, 250ms, 1m or 5 (seconds)".to_owned())
}
