//! Tests of the files that `init` writes, for every vendor whose profile is compiled in.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use sluice_sdk::vendors::{Counts, PublishedLimit};
use sluice_testkit::EmbeddedDynamo;

use super::super::{apply_all, compare};
use super::*;

const TABLE: &str = "ontopix-vendor-buckets-test";

fn options(vendor: &str, tier: Option<&str>, models: &[&str]) -> Options {
    let models = models.iter().map(|model| (*model).to_owned()).collect();
    Options { vendor: vendor.to_owned(), tier: tier.map(str::to_owned), models, out: None }
}

fn of(name: &str, tier: Option<&str>, models: &[&str]) -> Result<String, Failure> {
    file_of(vendor(Vendors::builtin(), name)?, &options(name, tier, models))
}

fn text(vendor: &str, tier: Option<&str>, models: &[&str]) -> String {
    of(vendor, tier, models).unwrap()
}

fn error(vendor: &str, tier: Option<&str>, models: &[&str]) -> String {
    of(vendor, tier, models).unwrap_err().to_string()
}

/// A vendor of its own, in place of what pages say this month.
fn acme(profile: &str, limits: Vec<PublishedLimit>) -> Profile {
    let vendors = Vendors::default().with(&format!("vendor = \"acme\"\n{profile}")).unwrap();
    let mut profile = Profile::clone(vendors.named("acme").unwrap());
    profile.limits = limits;
    profile
}

fn of_acme(profile: &Profile, models: &[&str]) -> Result<String, Failure> {
    file_of(profile, &options("acme", None, models))
}

/// A limit of the account, in windows of `secs` seconds; 0: calls at once.
fn limit(metric: &str, amount: u64, secs: u64) -> PublishedLimit {
    let mut limit = Vendors::builtin().all().find_map(|profile| profile.limits.first().cloned()).unwrap();
    limit.window = (secs > 0).then(|| Duration::from_secs(secs));
    (limit.metric, limit.amount, limit.source) =
        (metric.to_owned(), amount, format!("https://acme.example/{metric}"));
    (limit.tier, limit.model, limit.counts) = (None, None, Counts::Bucket);
    limit
}

fn of_model(model: &str, mut limit: PublishedLimit) -> PublishedLimit {
    limit.model = Some(model.to_owned());
    limit
}

fn counted(counts: Counts, mut limit: PublishedLimit) -> PublishedLimit {
    limit.counts = counts;
    limit
}

fn tiers(profile: &Profile) -> Vec<Option<String>> {
    let mut tiers: Vec<_> = profile.limits.iter().filter_map(|limit| limit.tier.clone()).map(Some).collect();
    tiers.sort();
    tiers.dedup();
    if tiers.is_empty() { vec![None] } else { tiers }
}

/// The same without the signs that comment buckets out, and with figures.
fn filled_in(text: &str) -> String {
    let fields = ["[[bucket]]", "dimension = ", "type = ", "limit = ", "window = ", "capacity = "];
    let active = |line: &str| {
        let line = line
            .strip_prefix("# ")
            .filter(|line| fields.iter().any(|field| line.starts_with(field)))
            .unwrap_or(line);
        line.replace("= 0 ", "= 100 ")
    };
    text.lines().map(active).collect::<Vec<_>>().join("\n")
}

async fn apply(text: &str) -> usize {
    let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    let client = dynamo.client(TABLE);
    let declared = BucketsFile::parse("init.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (changes, held) = apply_all(&client, &declared).await.unwrap();
    assert!(held.is_empty(), "{held:?}");
    assert!(
        changes.iter().all(|change| change.change == "created" && change.warning.is_none()),
        "{changes:#?}"
    );
    let again = compare(&client, &declared).await.unwrap();
    assert!(again.iter().all(|change| change.change == "unchanged"), "{again:#?}");
    changes.len()
}

#[tokio::test]
async fn the_file_of_every_vendor_and_tier_applies_to_an_empty_table() {
    for profile in Vendors::builtin().all() {
        for tier in tiers(profile) {
            let text = text(&profile.vendor, tier.as_deref(), &[]);
            if profile.limits.is_empty() {
                assert!(
                    BucketsFile::parse("init.toml", &text).is_err(),
                    "it has figures that nobody stated:\n{text}"
                );
                assert!(apply(&filled_in(&text)).await > 0);
                continue;
            }
            let is_of_tier = |published: &Option<String>| published.is_none() || *published == tier;
            let published = profile.limits.iter().filter(|limit| is_of_tier(&limit.tier)).count();
            let left_out = text.matches(": no ").count();
            assert_eq!(apply(&text).await, published - left_out, "{text}");
        }
    }
}

#[test]
fn every_figure_has_its_page_above_it() {
    for profile in Vendors::builtin().all() {
        for tier in tiers(profile) {
            let text = text(&profile.vendor, tier.as_deref(), &[]);
            let buckets: Vec<_> = text.split("\n\n").skip(1).collect();
            for limit in profile.limits.iter().filter(|limit| limit.tier.is_none() || limit.tier == tier) {
                let figure = entry::number(limit.amount);
                let says = |line: &str| {
                    line == format!("limit = {figure}") || line == format!("capacity = {figure}")
                };
                let has_page = |bucket: &&&str| bucket.starts_with(&format!("# {}\n", limit.source));
                let is_there = buckets.iter().filter(has_page).any(|bucket| {
                    bucket.contains(&format!("#{}\"", limit.metric)) && bucket.lines().any(says)
                });
                assert!(
                    is_there || text.contains(&format!("# {}\n# {figure} {}", limit.source, limit.metric)),
                    "{text}"
                );
            }
            let bare =
                buckets.iter().find(|bucket| !bucket.starts_with("# https://") && !profile.limits.is_empty());
            assert_eq!(bare, None);
            assert!(text.contains("the vendor's console"), "{text}");
        }
    }
}

#[test]
fn a_model_is_chosen_with_the_limits_of_its_account() {
    let limits = vec![
        of_model("m/1", limit("rpm", 600, 60)),
        of_model("m2", limit("tpm", 9_000, 60)),
        limit("concurrent", 5, 0),
    ];
    let text = of_acme(&acme("", limits), &["M/1"]).unwrap();
    let expected = "\
        \n# https://acme.example/rpm\n[[bucket]]\ndimension = \"acme#m/1#rpm\"\ntype = \"requests\"\nlimit = 600\nwindow = \"1m\"\n\
        \n# https://acme.example/concurrent\n[[bucket]]\ndimension = \"acme#concurrent\"\ntype = \"concurrent\"\ncapacity = 5\n";
    assert!(text.ends_with(expected), "{text}");
    assert!(!text.contains("m2"), "{text}");
}

#[test]
fn a_limit_that_is_enforced_over_less_than_its_minute_has_a_small_burst_and_says_why() {
    let enforced = "[enforced]\nover = [\"10s\", \"1s\"]\nsource = \"https://acme.example/enforced\"\n";
    let text = of_acme(&acme(enforced, vec![limit("rpm", 6_000, 60)]), &[]).unwrap();
    assert!(
        text.ends_with(
            "limit = 6_000\nwindow = \"1m\"\n# Also enforced over 1s, so a larger burst may be refused:\n\
             # https://acme.example/enforced\ncapacity = 4\n"
        ),
        "{text}"
    );
    let others = vec![limit("rpd", 6_000, 86_400), limit("tpm", 6_000, 60)];
    let text = of_acme(&acme(enforced, others), &[]).unwrap();
    assert!(
        !text.contains("capacity"),
        "a day is not enforced so, and a burst must have room for tokens:\n{text}"
    );
}

#[test]
fn a_vendor_that_counts_in_windows_has_buckets_that_do() {
    let limits = vec![
        counted(Counts::Sliding, limit("rpm", 600, 60)),
        counted(Counts::Fixed, limit("rpd", 250, 86_400)),
        counted(Counts::Fixed, limit("tpm", 30_000, 60)),
        counted(Counts::Fixed, limit("rps", 1, 1)),
    ];
    let text = of_acme(&acme("", limits), &[]).unwrap();
    for lines in [
        "limit = 600\nwindow = \"1m\"\ncounts = \"sliding\"\n\n",
        "window = \"1d\"\ncounts = \"fixed\"\n# The largest burst: a tenth. The rest of the limit flows back.\ncapacity = 25\n",
        "window = \"1m\"\ncounts = \"fixed\"\n# The tokens of the largest call: put in yours. The rest of the limit flows back.\ncapacity = 3_000\n",
        "# 1 in each window of 1s, so one by one.\ncapacity = 1\nrefill_rate = 0.588235294117\n",
    ] {
        assert!(text.contains(lines), "{lines}\nis not in\n{text}");
    }
}

#[test]
fn what_no_bucket_can_count_or_name_is_a_comment() {
    let limits =
        vec![limit("ash", 7_200, 3_600), of_model("a model", limit("rpm", 5, 60)), limit("rpd", 50, 86_400)];
    let text = of_acme(&acme("", limits), &[]).unwrap();
    assert!(
        text.contains("# https://acme.example/ash\n# 7_200 ash: no type of bucket counts this.\n"),
        "{text}"
    );
    let unnamed = "# 5 rpm of \"a model\": no bucket can have this model in its name: it has white space";
    assert!(text.contains(unnamed), "{text}");
    assert_eq!(BucketsFile::parse("init.toml", &text).unwrap().limits.len(), 1);
}

#[test]
fn a_vendor_without_published_limits_has_the_buckets_that_its_replies_report() {
    let headers = "[[quota]]\nkind = \"input_tokens\"\nlimit = \"x-limit\"\nwindow = \"1m\"\nsource = \"https://acme.example/h\"\n";
    let text = of_acme(&acme(headers, vec![]), &["m1"]).unwrap();
    assert!(text.contains("# https://acme.example/h\n"), "{text}");
    assert!(
        text.ends_with(
            "# Replies report it as x-limit.\n# [[bucket]]\n# dimension = \"acme#m1#itpm\"\n# type = \"tokens\"\n\
             # limit = 0       # your account's number\n# window = \"1m\"\n\
             # cost_per_call = 1_000    # for calls that name no cost: else an error\n"
        ),
        "{text}"
    );
    let bare = acme("", vec![]);
    let unknown = of_acme(&bare, &[]).unwrap();
    assert!(
        unknown.contains("# dimension = \"acme#rpm\"") && unknown.contains("# dimension = \"acme#tpm\""),
        "{unknown}"
    );
    assert!(of_acme(&bare, &["a model"]).unwrap_err().to_string().contains("white space"));
    let tier = file_of(&bare, &options("acme", Some("1"), &[])).unwrap_err().to_string();
    assert!(tier.contains("leave out --tier"), "{tier}");
}

/// A paid plan of a vendor whose free tier alone is known.
#[tokio::test]
async fn an_account_in_another_tier_gets_buckets_without_figures() {
    for profile in Vendors::builtin().all().filter(|profile| !choice::tiers(profile).is_empty()) {
        let text = text(&profile.vendor, Some("Another"), &[]);
        assert!(text.contains("in a tier whose figures Sluice does not know"), "{text}");
        assert!(!has_buckets(&text) && apply(&filled_in(&text)).await > 0, "{text}");
    }
    let elevenlabs = text("elevenlabs", Some("another"), &[]);
    assert!(elevenlabs.contains("# dimension = \"elevenlabs#concurrent\""), "{elevenlabs}");
    assert!(error("groq", Some("another"), &[]).contains("no tiers: leave out --tier"));
}

#[test]
fn figures_that_somebody_else_wrote_down_are_not_called_the_vendors() {
    let found = text("elevenlabs", Some("Free"), &[]);
    assert!(
        found.contains("as found in https://github.com/") && !found.contains("vendor publishes"),
        "{found}"
    );
    let published = text("groq", None, &[]);
    assert!(published.contains("as the vendor publishes them: a start"), "{published}");
}

#[test]
fn what_is_not_known_is_answered_with_what_is() {
    let unknown = error("acme", None, &[]);
    assert!(unknown.contains("acme is no vendor that is known"), "{unknown}");
    assert!(Vendors::builtin().all().all(|known| unknown.contains(&known.vendor)), "{unknown}");
    let in_tier = |tier: &str, mut limit: PublishedLimit| {
        limit.tier = Some(tier.to_owned());
        limit
    };
    let limits = || {
        vec![in_tier("Free Trial", limit("rpm", 5, 60)), in_tier("Paid", of_model("m1", limit("rpm", 9, 60)))]
    };
    let tiered = acme("", limits());
    let said = |profile: &Profile, tier, models: &[&str]| {
        file_of(profile, &options("acme", tier, models)).unwrap_err().to_string()
    };
    let tier = said(&tiered, None, &[]);
    assert!(tier.contains("--tier; one of: \"Free Trial\", Paid"), "{tier}");
    let tier = said(&tiered, Some("9"), &[]);
    assert!(tier.contains("no tier \"9\"") && tier.contains("\"Free Trial\", Paid"), "{tier}");
    let model = said(&tiered, Some("Paid"), &["gpt-2"]);
    assert!(model.contains("the model \"gpt-2\"") && model.contains("use one of: m1"), "{model}");
    let model = said(&tiered, Some("Free Trial"), &["m1"]);
    assert!(model.contains("no limits by model: leave out --model m1"), "{model}");
    let tier = said(&acme("", vec![limit("rpm", 5, 60)]), Some("1"), &[]);
    assert!(tier.contains("no tiers: leave out --tier"), "{tier}");
    // Upper and lower case do not matter, and a vendor's other names mean the same.
    let of = |tier, model: &str| file_of(&tiered, &options("acme", Some(tier), &[model])).unwrap();
    assert_eq!(of("PAID", "M1"), of("Paid", "m1"));
    let named = |name| vendor(Vendors::builtin(), name).unwrap();
    assert_eq!(named("Google"), named("gemini"));
}

/// The profile of an own vendor that states the same limit twice.
#[test]
fn a_file_that_apply_would_not_read_is_not_written() {
    let twice = acme("", vec![limit("rpm", 5, 60), limit("rpm", 5, 60)]);
    let error = of_acme(&twice, &[]).unwrap_err().to_string();
    assert!(error.contains("the profile of acme") && error.contains("declared twice"), "{error}");
}
