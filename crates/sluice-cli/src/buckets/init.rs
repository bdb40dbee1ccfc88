//! `sluice buckets init`: a file of limits to start from, from what a vendor publishes. No table is read.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use sluice_sdk::vendors::{Profile, Vendors};

use super::BucketsFile;
use crate::failure::Failure;

mod choice;
mod entry;
mod published;
#[cfg(test)]
mod tests;
mod unpublished;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The vendor, as buckets name it in their first part: openai
    vendor: String,
    /// The account's tier or plan, as the vendor calls it; `another` leaves the figures to you
    #[arg(long)]
    tier: Option<String>,
    /// A model; repeat it for several. All models whose limits are known by default
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Write a new file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let files = std::env::var("SLUICE_VENDORS").unwrap_or_default();
    let vendors = vendors(&files)?;
    let text = file_of(vendor(&vendors, &options.vendor)?, options)?;
    match &options.out {
        None => print!("{text}"),
        Some(file) => {
            write(file, &text)?;
            let file = file.display();
            println!("wrote {file}: compare it with your account, then `sluice buckets apply {file}`");
        }
    }
    Ok(())
}

/// A vendor that is known, for `sluice init`.
#[derive(Debug)]
pub(crate) struct KnownVendor(Box<Profile>);

impl KnownVendor {
    /// The vendor of this name.
    pub(crate) fn named(name: &str) -> Result<Self, Failure> {
        let vendors = vendors(&std::env::var("SLUICE_VENDORS").unwrap_or_default())?;
        vendor(&vendors, name).map(|profile| Self(Box::new(profile.clone())))
    }

    /// The names of all.
    pub(crate) fn names() -> Result<Vec<String>, Failure> {
        let vendors = vendors(&std::env::var("SLUICE_VENDORS").unwrap_or_default())?;
        let mut names: Vec<_> = vendors.all().map(|profile| profile.vendor.clone()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The name, as buckets have it in their first part.
    pub(crate) fn name(&self) -> &str {
        &self.0.vendor
    }

    /// The tiers in which the vendor has other limits.
    pub(crate) fn tiers(&self) -> Vec<&str> {
        choice::tiers(&self.0)
    }

    /// The file of limits of a tier and of models; all models, if none is named.
    pub(crate) fn limits(&self, tier: Option<&str>, models: &[String]) -> Result<String, Failure> {
        let options = Options {
            vendor: self.name().to_owned(),
            tier: tier.map(str::to_owned),
            models: models.to_owned(),
            out: None,
        };
        file_of(&self.0, &options)
    }
}

/// The vendors that are known: those of this program, and those of the profiles in `files`.
fn vendors(files: &str) -> Result<Vendors, Failure> {
    let mut files = files.split(',').map(str::trim).filter(|file| !file.is_empty());
    files.try_fold(Vendors::default(), |vendors, file| {
        let failed = |why: &dyn std::fmt::Display| Failure::new(format!("SLUICE_VENDORS: {file}: {why}"));
        let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
        vendors.with(&text).map_err(|error| failed(&error))
    })
}

/// The tier of an account whose figures Sluice does not know.
pub(crate) const ANOTHER_TIER: &str = "another";

/// Whether a file of limits has a bucket that is not commented out.
pub(crate) fn has_buckets(limits: &str) -> bool {
    limits.lines().any(|line| line == "[[bucket]]")
}

/// The file for a tier and models of a vendor. It has been read as `apply` reads it, unless all of it is
/// commented out.
fn file_of(profile: &Profile, options: &Options) -> Result<String, Failure> {
    let is_another = options.tier.as_deref().is_some_and(choice::is_another);
    if profile.limits.is_empty() || is_another && !choice::tiers(profile).is_empty() {
        return unpublished::file(profile, options);
    }
    let chosen = choice::limits(profile, options.tier.as_deref(), &options.models)?;
    let text = published::file(profile, &chosen);
    let name = format!("the limits in the profile of {}", profile.vendor);
    BucketsFile::parse(&name, &text)?;
    Ok(text)
}

fn vendor<'a>(vendors: &'a Vendors, name: &str) -> Result<&'a Profile, Failure> {
    if let Some(profile) = vendors.named(name) {
        return Ok(profile);
    }
    let mut known: Vec<_> = vendors.all().map(|profile| profile.vendor.as_str()).collect();
    known.sort_unstable();
    let known = known.join(", ");
    Err(Failure::new(format!(
        "{name} is no vendor that is known; use one of: {known} (or name a profile in SLUICE_VENDORS)"
    )))
}

/// Limits that somebody has edited are not overwritten.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::new(format!(
            "{}: it exists, and is not overwritten; choose another file, or remove it",
            path.display()
        )),
        _ => Failure::new(format!("{}: {error}", path.display())),
    })
}
