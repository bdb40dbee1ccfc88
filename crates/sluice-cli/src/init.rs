//! `sluice init`: asks for vendor, tier and environment, and writes what a product needs to begin with. No
//! table is read.

use std::io::{IsTerminal as _, stderr, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use sluice_sdk::core::schema::{ENVIRONMENTS, table_name};

use self::question::ask;
use crate::buckets::init::{KnownVendor, write};
use crate::failure::{Ended, Failure};

mod question;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The vendor, as buckets name it in their first part: openai
    #[arg(long)]
    vendor: Option<String>,
    /// The account's tier or plan, as the vendor calls it; only if its limits depend on it
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
    let terraform_file = options.dir.join(format!("sluice.{environment}.tfvars"));
    // Before the first is written: both or none.
    if let Some(file) = [&limits_file, &terraform_file].into_iter().find(|file| file.exists()) {
        return Err(Failure::new(format!(
            "{}: it exists, and is not overwritten; choose another folder with --dir, or remove it",
            file.display()
        )));
    }
    write(&limits_file, &limits)?;
    write(&terraform_file, &terraform(&environment, &product, vendor.name()))?;
    let paths = [&limits_file, &terraform_file].map(|file| file.display().to_string());
    print!("{}", next_steps(&paths, &environment, &product, vendor.name()));
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
    let tiers: Vec<String> = vendor.tiers().into_iter().map(str::to_owned).collect();
    match &options.tier {
        // Checked with the limits.
        Some(tier) => Ok(Some(tier.clone())),
        None if tiers.is_empty() => Ok(None),
        None => {
            must_be_a_terminal("--tier", &tiers)?;
            ask(&format!("Which tier is your account of {} in?", vendor.name()), &tiers).map(Some)
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

/// The variables of `infra/`. Its other variables have defaults.
fn terraform(environment: &str, product: &str, vendor: &str) -> String {
    let paged = match environment {
        "prod" => {
            "\n# Prod is refused without a topic that reaches whoever is on call: name yours.\ncritical_topic_arns = []\n"
        }
        "sandbox" => "\ndeletion_protection = false\n",
        _ => "",
    };
    format!(
        "# Terraform variables of Sluice's table, reconciler and alarms (infra/ of Sluice; docs/deploying.md):\n\
         # terraform apply -var-file=FILE\n\
         environment = {environment:?}\n\n\
         # Each product, with the vendors whose rows its policy covers.\n\
         callers = {{\n  {product:?} = {{ vendors = [{vendor:?}] }}\n}}\n{paged}"
    )
}

fn next_steps([limits, terraform]: &[String; 2], environment: &str, product: &str, vendor: &str) -> String {
    let table = table_name(environment);
    let create = match environment {
        "sandbox" => format!(
            "  2. Start a table on this machine, and set in another shell what this prints:\n       \
             sluice sandbox --buckets {limits}\n"
        ),
        _ => format!(
            "  2. Create the table {table} (docs/deploying.md) with these variables:\n       \
             terraform apply -var-file={terraform}\n     then apply the limits:\n       \
             SLUICE_ENV={environment} sluice buckets apply {limits}\n"
        ),
    };
    format!(
        "wrote {limits} and {terraform}\n\n\
         Next:\n  \
         1. Compare each figure in {limits} with your account.\n\
         {create}  \
         3. Set in the product:\n       SLUICE_ENV={environment} SLUICE_CALLER={product}\n  \
         4. Put one line where the product builds its HTTP client:\n     \
         Rust        http.with(sluice_http::Limiter::from_env().await?.vendor({vendor:?}))\n     \
         Python      transport=sluice.httpx2.Transport({vendor:?})\n     \
         TypeScript  fetch: limitedFetch({vendor:?})\n     \
         Go          Transport: &sluice.Transport{{Client: client, Vendor: {vendor:?}}}\n     \
         docs/http.md, python.md, node.md and go.md of Sluice show it in full.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prod_gets_the_variable_without_which_terraform_refuses_it() {
        let prod = terraform("prod", "chat", "openai");
        for line in
            ["environment = \"prod\"", "  \"chat\" = { vendors = [\"openai\"] }", "critical_topic_arns = []"]
        {
            assert!(prod.lines().any(|one| one == line), "{prod}");
        }
        assert!(!terraform("pre", "chat", "openai").contains("critical_topic_arns"));
        assert!(terraform("sandbox", "chat", "openai").contains("deletion_protection = false"));
    }

    /// Each variable that is written, as `infra/variables.tf` declares it.
    #[test]
    fn every_variable_is_one_of_infra() {
        let declared = include_str!("../../../infra/variables.tf");
        for environment in ENVIRONMENTS {
            let text = terraform(environment, "chat", "openai");
            let names =
                text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
            for name in names.filter_map(|line| line.split(" =").next()) {
                assert!(declared.contains(&format!("variable \"{name}\" {{")), "{name}");
            }
        }
    }
}
