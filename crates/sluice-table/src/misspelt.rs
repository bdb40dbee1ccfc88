//! Finds variables that are nearly the name of a setting: a misspelt one would be ignored without a word.

/// Every variable of `docs/settings.md`.
const SETTINGS: [&str; 29] = [
    "SLUICE_TABLE_NAME",
    "SLUICE_ENV",
    "SLUICE_AWS_REGION",
    "SLUICE_ENDPOINT_URL",
    "SLUICE_LEASE_TTL",
    "SLUICE_MAX_RETRIES",
    "SLUICE_ATTEMPT_TIMEOUT",
    "SLUICE_ANSWER_WITHIN",
    "SLUICE_DEFAULT_SLOT_TIMEOUT",
    "SLUICE_INLINE_RETRY_THRESHOLD",
    "SLUICE_LONGEST_COOL_DOWN",
    "SLUICE_LOG_LEVEL",
    "SLUICE_METRICS",
    "SLUICE_MODE",
    "SLUICE_LEASES",
    "SLUICE_ADMISSION",
    "SLUICE_STALENESS",
    "SLUICE_SLOWEST_CALL",
    "SLUICE_SELF_HEAL",
    "SLUICE_HEAL_BUDGET",
    "SLUICE_MAX_BUCKETS",
    "SLUICE_CAP_DEBT",
    "SLUICE_VENDORS",
    "SLUICE_ON_UNAVAILABLE",
    "SLUICE_WARN_AT",
    "SLUICE_NOTE_USE",
    "SLUICE_DASHBOARD_TOKEN",
    "SLUICE_SHARE",
    "SLUICE_CALLER",
];

/// What every setting begins with.
const PREFIX: &str = "SLUICE_";

/// Warns of each variable of this process that is nearly the name of a setting. Others that begin with
/// `SLUICE_` may be the product's own.
pub fn warn_of_misspelt_variables() {
    for (variable, meant) in misspelt(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
        tracing::warn!(
            event = "settings.misspelt",
            variable,
            meant,
            "{variable} is no setting, and is ignored: did you mean {meant}?"
        );
    }
}

/// The names that are nearly a setting's, each with that setting.
fn misspelt(names: impl Iterator<Item = String>) -> Vec<(String, &'static str)> {
    let near = |name: String| {
        let rest = name.strip_prefix(PREFIX)?;
        // One letter of a short name, and two of a longer one.
        let most = if rest.len() <= 5 { 1 } else { 2 };
        let distance = |setting: &&str| typing_errors(rest, &setting[PREFIX.len()..]);
        let meant = SETTINGS.iter().min_by_key(|setting| distance(setting))?;
        (1..=most).contains(&distance(meant)).then_some((name, *meant))
    };
    let mut found: Vec<_> = names.filter_map(near).collect();
    found.sort_unstable();
    found
}

/// How many letters were left out, put in, replaced or exchanged with their neighbour (optimal string
/// alignment).
fn typing_errors(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in other.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(letter != wanted);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *wanted {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_the_documentation_is_known() {
        let page = include_str!("../../../docs/settings.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: Vec<_> = rows.filter_map(|row| row.split('`').next()).collect();
        assert_eq!(documented, SETTINGS);
    }

    #[test]
    fn a_name_that_is_nearly_a_setting_is_told_and_no_other() {
        let names =
            ["SLUICE_LEASE_TLL", "SLUICE_EVN", "SLUICE_ON_UNAVAILBLE", "SLUICE_MAXRETRIES", "SLUICE_CALER"];
        let others = [
            "SLUICE_LEASE_TTL",
            "SLUICE_CLI",
            "SLUICE_SIM_SEEDS",
            "SLUICE_SANDBOX_PORT",
            "LEASE_TLL",
            "SLUICE_",
        ];
        let found = misspelt(names.iter().chain(&others).map(|name| (*name).to_owned()));
        let meant: Vec<_> = found.iter().map(|(name, meant)| (name.as_str(), *meant)).collect();
        assert_eq!(
            meant,
            [
                ("SLUICE_CALER", "SLUICE_CALLER"),
                ("SLUICE_EVN", "SLUICE_ENV"),
                ("SLUICE_LEASE_TLL", "SLUICE_LEASE_TTL"),
                ("SLUICE_MAXRETRIES", "SLUICE_MAX_RETRIES"),
                ("SLUICE_ON_UNAVAILBLE", "SLUICE_ON_UNAVAILABLE"),
            ]
        );
    }
}
