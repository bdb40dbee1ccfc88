//! `sluice init`: asks for vendor, tier and environment, and writes what a product needs to begin with. No
//! table is read.

use std::fmt;
use std::io::{IsTerminal as _, stderr, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use sluice_sdk::core::schema::{ENVIRONMENTS, table_name};

use self::question::ask;
use crate::buckets::init::{ANOTHER_TIER, KnownVendor, has_buckets, write};
use crate::failure::{Ended, Failure};

mod question;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The vendor, as buckets name it in their first part: openai
    #[arg(long)]
    vendor: Option<String>,
    /// The account's tier or plan, as the vendor calls it; only if its limits depend on it. `another` leaves
    /// the figures to you
    #[arg(long)]
    tier: Option<String>,
    /// A model; repeat it for several. All models whose limits are known by default
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// The environment: sandbox, pre or prod
    #[arg(long = "env", value_name = "ENV", value_parser = ENVIRONMENTS)]
    environment: Option<String>,
    /// The product's name, in Terraform's policies and in leases; the folder's by default
    #[arg(long)]
    product: Option<String>,
    /// The folder in which the files are written
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
}

pub(crate) fn run(options: &Options) -> Ended {
    let vendor = vendor(options)?;
    let tier = tier(options, &vendor)?;
    let environment = environment(options)?;
    std::fs::create_dir_all(&options.dir).map_err(|error| {
        Failure::new(format!("{}: the folder cannot be made: {error}", options.dir.display()))
    })?;
    let product = match &options.product {
        Some(product) => product.clone(),
        None => folder(&options.dir)?,
    };
    let limits = vendor.limits(tier.as_deref(), &options.models)?;
    let limits_file = options.dir.join(format!("limits.{environment}.toml"));
    // A sandbox is no table in AWS.
    let terraform_file =
        (environment != "sandbox").then(|| options.dir.join(format!("sluice.{environment}.tfvars")));
    // Before the first is written: both or none.
    if let Some(file) = [&limits_file].into_iter().chain(&terraform_file).find(|file| file.exists()) {
        return Err(Failure::new(format!(
            "{}: it exists, and is not overwritten; choose another folder with --dir, or remove it",
            file.display()
        )));
    }
    write(&limits_file, &limits)?;
    if let Some(file) = &terraform_file {
        write(file, &terraform(&environment, &product, vendor.name()))?;
    }
    let terraform_name = terraform_file.as_ref().map(|file| file.display().to_string());
    let next = NextSteps {
        limits: &limits_file.display().to_string(),
        has_figures: has_buckets(&limits),
        terraform: terraform_name.as_deref(),
        environment: &environment,
        product: &product,
        vendor: vendor.name(),
    };
    print!("{next}");
    Ok(ExitCode::SUCCESS)
}

fn vendor(options: &Options) -> Result<KnownVendor, Failure> {
    match &options.vendor {
        Some(name) => KnownVendor::named(name),
        None => {
            let names = KnownVendor::names()?;
            must_be_a_terminal("--vendor", &names)?;
            KnownVendor::named(&ask("Which vendor do you call?", &names)?)
        }
    }
}

fn tier(options: &Options, vendor: &KnownVendor) -> Result<Option<String>, Failure> {
    let mut tiers: Vec<String> = vendor.tiers().into_iter().map(str::to_owned).collect();
    match &options.tier {
        // Checked with the limits.
        Some(tier) => Ok(Some(tier.clone())),
        None if tiers.is_empty() => Ok(None),
        None => {
            tiers.push(ANOTHER_TIER.to_owned());
            must_be_a_terminal("--tier", &tiers)?;
            tiers.pop();
            let another = format!("{ANOTHER_TIER}: I fill in the figures");
            tiers.push(another.clone());
            let chosen = ask(&format!("Which tier is your account of {} in?", vendor.name()), &tiers)?;
            Ok(Some(if chosen == another { ANOTHER_TIER.to_owned() } else { chosen }))
        }
    }
}

fn environment(options: &Options) -> Result<String, Failure> {
    match &options.environment {
        Some(environment) => Ok(environment.clone()),
        None => {
            let environments = ENVIRONMENTS.map(str::to_owned);
            must_be_a_terminal("--env", &environments)?;
            ask("For which environment?", &environments)
        }
    }
}

fn must_be_a_terminal(flag: &str, choices: &[String]) -> Result<(), Failure> {
    if stdin().is_terminal() && stderr().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(format!("there is no terminal to ask on: name {flag}, one of: {}", choices.join(", "))))
}

/// The name of the folder, as a policy can have it.
fn folder(dir: &Path) -> Result<String, Failure> {
    let path =
        std::fs::canonicalize(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name = name.chars().map(plain).collect::<String>();
    let name = name.trim_matches('-');
    Ok(if name.is_empty() { "product".to_owned() } else { name.to_owned() })
}

/// Lines for the variables of an environment, `infra/envs/ENV.tfvars`, which has the others.
fn terraform(environment: &str, product: &str, vendor: &str) -> String {
    let paged = match environment {
        "prod" => {
            "\n# Prod is refused without a topic that reaches whoever is on call, and the page (https) that says what to do:\n\
             # name yours.\ncritical_topic_arns = []\nrunbook_url = \"\"\n"
        }
        _ => "",
    };
    format!(
        "# Terraform variables of a product that uses Sluice's table. In a clone of Sluice, copy them into\n\
         # infra/envs/{environment}.tfvars, which has the others; if it has callers, add the product to those. Then:\n\
         # task infra:apply ENV={environment} (docs/to-aws.md)\n\n\
         # Each product, with the vendors whose rows its policy covers.\n\
         callers = {{\n  {product:?} = {{ vendors = [{vendor:?}] }}\n}}\n{paged}"
    )
}

/// What to do with the files.
struct NextSteps<'a> {
    limits: &'a str,
    /// Whether the limits are there, or the user has to fill them in.
    has_figures: bool,
    /// None for a sandbox.
    terraform: Option<&'a str>,
    environment: &'a str,
    product: &'a str,
    vendor: &'a str,
}

impl fmt::Display for NextSteps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, has_figures, terraform, environment, product, vendor } = *self;
        let and_terraform = terraform.map(|file| format!(" and {file}")).unwrap_or_default();
        writeln!(f, "wrote {limits}{and_terraform}\n\nNext:")?;
        match has_figures {
            true => writeln!(f, "  1. Compare each figure in {limits} with your account.")?,
            false => writeln!(
                f,
                "  1. Put your account's figures into {limits}, and remove the # from the lines of each\n     \
                 bucket that you need: all buckets are commented out."
            )?,
        }
        match terraform {
            None => writeln!(
                f,
                "  2. Start a table on this machine, and set in another shell what this prints:\n       \
                 sluice sandbox --buckets {}",
                for_a_shell(limits)
            )?,
            Some(terraform) => writeln!(
                f,
                "  2. In a clone of Sluice (docs/to-aws.md), copy the variables of {terraform}\n     \
                 into infra/envs/{environment}.tfvars, create the table {},\n     \
                 and apply the limits:\n       \
                 task infra:apply ENV={environment}\n       \
                 task buckets:apply ENV={environment} FILE={}",
                table_name(environment),
                for_a_shell(&absolute(limits))
            )?,
        }
        writeln!(f, "  3. Set in the product:\n       SLUICE_ENV={environment} SLUICE_CALLER={product}")?;
        f.write_str(&the_line(vendor))
    }
}

/// The line to put into the product.
fn the_line(vendor: &str) -> String {
    match vendor {
        // The limiters of HTTP clients in Python, TypeScript and Go were not tested with the AWS SDKs.
        "bedrock" => "  4. Put each call into a slot; in Rust, one line where the product builds its HTTP client:\n     \
             Rust        sluice_http::Limiter::from_env().await?.vendor(\"bedrock\").http_client(http)\n     \
             Python      with client.slot(RPM, TPM, costs={TPM: tokens}) as slot:\n     \
             TypeScript  client.slot([RPM, TPM], { costs: { [TPM]: tokens } }, async (slot) => { ... })\n     \
             Go          client.WithSlot(ctx, sluice.On(rpm, tpm).Cost(tpm, tokens), call)\n     \
             docs/bedrock.md of Sluice shows it in full.\n"
            .to_owned(),
        _ => format!(
            "  4. Put one line where the product builds its HTTP client:\n     \
             Rust        http.with(sluice_http::Limiter::from_env().await?.vendor({vendor:?}))\n     \
             Python      transport=sluice.httpx2.Transport({vendor:?})\n     \
             TypeScript  fetch: limitedFetch({vendor:?})\n     \
             Go          Transport: &sluice.Transport{{Client: client, Vendor: {vendor:?}}}\n     \
             docs/http.md, python.md, node.md and go.md of Sluice show it in full.\n"
        ),
    }
}

/// The path from any folder: the next command may run in another.
fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

/// In quotes, if a shell would take the text for several words.
fn for_a_shell(text: &str) -> String {
    match text.chars().all(|letter| letter.is_alphanumeric() || "/._-".contains(letter)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prod_gets_the_variables_without_which_terraform_refuses_it() {
        let prod = terraform("prod", "chat", "openai");
        for line in
            ["  \"chat\" = { vendors = [\"openai\"] }", "critical_topic_arns = []", "runbook_url = \"\""]
        {
            assert!(prod.lines().any(|one| one == line), "{prod}");
        }
        assert!(!terraform("pre", "chat", "openai").contains("critical_topic_arns"));
    }

    /// They are copied into the file of the environment, which may state none of them twice.
    #[test]
    fn no_variable_is_in_the_file_of_the_environment_already() {
        for (environment, file) in [
            ("sandbox", include_str!("../../../infra/envs/sandbox.tfvars")),
            ("pre", include_str!("../../../infra/envs/pre.tfvars")),
            ("prod", include_str!("../../../infra/envs/prod.tfvars")),
        ] {
            let text = terraform(environment, "chat", "openai");
            for name in names(&text) {
                assert!(names(file).all(|stated| stated != name), "{environment}: {name}");
            }
        }
    }

    /// The variables that a file states.
    fn names(text: &str) -> impl Iterator<Item = &str> {
        let lines = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
        lines.filter_map(|line| Some(line.split_once('=')?.0.trim()))
    }

    #[test]
    fn a_path_with_a_space_is_one_word_for_a_shell() {
        assert_eq!(for_a_shell("/tmp/limits.pre.toml"), "/tmp/limits.pre.toml");
        assert_eq!(for_a_shell("/tmp/it's mine"), r"'/tmp/it'\''s mine'");
    }

    /// Each variable that is written, as `infra/variables.tf` declares it.
    #[test]
    fn every_variable_is_one_of_infra() {
        let declared = include_str!("../../../infra/variables.tf");
        for environment in ENVIRONMENTS {
            let text = terraform(environment, "chat", "openai");
            for name in names(&text) {
                assert!(declared.contains(&format!("variable \"{name}\" {{")), "{name}");
            }
        }
    }
}
