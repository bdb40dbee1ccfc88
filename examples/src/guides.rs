//! The programs of the documents and of the crates' READMEs in Rust, compiled with the tests. build.rs makes
//! examples of those that also run.

macro_rules! pages {
    ($($name:ident $page:literal),+ $(,)?) => {
        $(#[doc = include_str!(concat!("../../docs/", $page))]
        struct $name;)+
    };
}

pages! {
    Admission "admission.md",
    Concurrency "concurrency.md",
    Lambda "lambda.md",
    Metrics "metrics.md",
    Refusals "refusals.md",
    Rust "rust.md",
    Shares "shares.md",
    Testing "testing.md",
    Tokens "tokens.md",
    Readme "../README.md",
    Sdk "../crates/sluice-sdk/README.md",
    Testkit "../crates/sluice-testkit/README.md",
}
