use super::*;

fn with(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::from_lookup(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
}

#[test]
fn there_is_no_silent_default_table() {
    assert_eq!(with(&[]).unwrap_err(), ConfigError::NoTable);
    assert_eq!(with(&[("SLUICE_TABLE_NAME", "")]).unwrap_err(), ConfigError::NoTable);
    assert_eq!(with(&[("SLUICE_ENV", "pre")]).unwrap().connection.table, "ontopix-vendor-buckets-pre");
    assert_eq!(
        with(&[("SLUICE_ENV", "pre"), ("SLUICE_TABLE_NAME", "mine")]).unwrap().connection.table,
        "mine"
    );
}

#[test]
fn a_bad_value_names_the_variable_the_value_and_what_it_takes() {
    let cases = [
        ("SLUICE_ENV", "production"),
        ("SLUICE_LEASE_TTL", "60 parsecs"),
        ("SLUICE_LEASE_TTL", "500ms"),
        ("SLUICE_LEASE_TTL", "0.5"),
        ("SLUICE_LEASE_TTL", "NaN"),
        ("SLUICE_LEASE_TTL", "1e300"),
        ("SLUICE_MAX_RETRIES", "-1"),
        ("SLUICE_MAX_RETRIES", "1000"),
        ("SLUICE_ATTEMPT_TIMEOUT", "0.01"),
        ("SLUICE_ATTEMPT_TIMEOUT", "61"),
        ("SLUICE_ANSWER_WITHIN", "0.05"),
        ("SLUICE_ANSWER_WITHIN", "61"),
        ("SLUICE_DEFAULT_SLOT_TIMEOUT", "0"),
        ("SLUICE_INLINE_RETRY_THRESHOLD", "-5"),
        ("SLUICE_ENDPOINT_URL", "localhost:4566"),
        ("SLUICE_LOG_LEVEL", "LOUD"),
        ("SLUICE_LEASES", "some"),
        ("SLUICE_ON_UNAVAILABLE", "share:2"),
        ("SLUICE_ON_UNAVAILABLE", "ignore"),
        ("SLUICE_MAX_BUCKETS", "0"),
        ("SLUICE_MAX_BUCKETS", "many"),
        ("SLUICE_SELF_HEAL", "yes"),
        ("SLUICE_HEAL_BUDGET", "9"),
        ("SLUICE_HEAL_BUDGET", "1e9"),
        ("SLUICE_ADMISSION", "on"),
        ("SLUICE_STALENESS", "0"),
        ("SLUICE_CAP_DEBT", "60000"),
        ("SLUICE_MODE", "dry-run"),
        ("SLUICE_WARN_AT", "0"),
        ("SLUICE_WARN_AT", "120%"),
        ("SLUICE_WARN_AT", "1"),
        ("SLUICE_WARN_AT", "100%"),
        ("SLUICE_WARN_AT", "most"),
        ("SLUICE_NOTE_USE", "rarely"),
        ("SLUICE_METRICS", "prometheus"),
    ];
    for (variable, value) in cases {
        let mut pairs = vec![(variable, value)];
        if variable != "SLUICE_ENV" {
            pairs.push(("SLUICE_ENV", "sandbox"));
        }
        let text = with(&pairs).unwrap_err().to_string();
        assert!(text.contains(variable) && text.contains(value) && text.contains("must be"), "{text}");
    }
}

#[test]
fn every_variable_is_read() {
    let config = with(&[
        ("SLUICE_ENV", "sandbox"),
        ("SLUICE_AWS_REGION", "us-east-1"),
        ("SLUICE_ENDPOINT_URL", "http://localhost:4566"),
        ("SLUICE_LEASE_TTL", "90"),
        ("SLUICE_MAX_RETRIES", "5"),
        ("SLUICE_ATTEMPT_TIMEOUT", "2.5"),
        ("SLUICE_ANSWER_WITHIN", "4s"),
        ("SLUICE_DEFAULT_SLOT_TIMEOUT", "12.5"),
        ("SLUICE_INLINE_RETRY_THRESHOLD", "2"),
        ("SLUICE_LEASES", "all"),
        ("SLUICE_ON_UNAVAILABLE", "share:0.25"),
        ("SLUICE_LOG_LEVEL", "warn"),
        ("SLUICE_MAX_BUCKETS", "500"),
        ("SLUICE_SELF_HEAL", "off"),
        ("SLUICE_HEAL_BUDGET", "600"),
        ("SLUICE_ADMISSION", "shadow"),
        ("SLUICE_STALENESS", "90"),
        ("SLUICE_CAP_DEBT", "off"),
        ("SLUICE_MODE", "shadow"),
        ("SLUICE_WARN_AT", "90%"),
        ("SLUICE_NOTE_USE", "off"),
        ("SLUICE_METRICS", "emf"),
        ("AWS_LAMBDA_FUNCTION_NAME", "audit-service"),
    ])
    .unwrap();
    assert_eq!(
        (config.connection.region.as_str(), config.lease_ttl.as_secs(), config.connection.max_retries),
        ("us-east-1", 90, 5)
    );
    assert_eq!(config.connection.endpoint_url.as_deref(), Some("http://localhost:4566"));
    assert_eq!(config.heal_budget, HealBudget::of(600));
    assert_eq!((config.connection.attempt_timeout.as_millis(), config.max_buckets), (2_500, 500));
    assert_eq!(config.connection.answer_within.as_secs(), 4);
    assert_eq!((config.max_wait.as_millis(), config.inline_retry_threshold.as_secs()), (12_500, 2));
    assert_eq!((config.leases, config.caller.as_str()), (Leases::All, "audit-service"));
    assert_eq!((config.admission, config.staleness.as_secs()), (AdmissionMode::Shadow, 90));
    assert!(!config.self_heal && with(&[("SLUICE_ENV", "sandbox")]).unwrap().self_heal);
    assert_eq!(
        (config.debt, with(&[("SLUICE_ENV", "sandbox")]).unwrap().debt),
        (Debt::Uncapped, Debt::Capped)
    );
    assert_eq!(config.on_unavailable, OnUnavailable::Share("0.25".parse().unwrap()));
    assert_eq!("share".parse(), Ok(OnUnavailable::EqualShare));
    for wrong in ["", "share:", "share:2", "Share"] {
        assert!(wrong.parse::<OnUnavailable>().is_err(), "{wrong}");
    }
    let default = with(&[("SLUICE_ENV", "sandbox")]).unwrap();
    assert_eq!((config.mode, default.mode), (Mode::Shadow, Mode::Enforce));
    assert_eq!((config.note_use, default.note_use), (false, true));
    let named = [("concurrent", Leases::Concurrent), ("all", Leases::All), ("inline", Leases::Inline)];
    for (name, leases) in named {
        assert_eq!(with(&[("SLUICE_ENV", "sandbox"), ("SLUICE_LEASES", name)]).unwrap().leases, leases);
    }
}

#[test]
fn the_part_of_a_limit_is_a_number_or_a_percentage_or_off() {
    let part = |text: &str| with(&[("SLUICE_ENV", "sandbox"), ("SLUICE_WARN_AT", text)]).unwrap().warn_at;
    let millionths = |text: &str| part(text).map(|part| part.ratio().0);
    let cases = [("0.8", 800_000), ("80%", 800_000), ("99.5%", 995_000), ("7.5%", 75_000), ("5%", 50_000)];
    for (text, expected) in cases {
        assert_eq!(millionths(text), Some(expected), "{text}");
    }
    assert_eq!(part("off"), None);
    assert_eq!(with(&[("SLUICE_ENV", "sandbox")]).unwrap().warn_at, part("80%"));
}
