//! The vendors that are known.

use std::sync::{Arc, LazyLock};

use sluice_core::Dimension;

use crate::profile::{Profile, ProfileError};

/// The vendors that are known, by the first part of a bucket's name and by host.
#[derive(Clone, Debug)]
pub struct Vendors {
    profiles: Vec<Arc<Profile>>,
    /// What holds for a vendor that is not known, and which refusals mean the same with every vendor.
    other: Arc<Profile>,
}

macro_rules! profiles {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*] };
}

/// The name and the text of each profile that is compiled in.
const BUILTIN: &[(&str, &str)] = profiles![
    "openai" "azure" "anthropic" "bedrock" "gemini" "vertex" "mistral" "cohere" "openrouter" "groq" "cerebras" "deepseek"
    "fireworks" "moonshot" "perplexity" "together" "xai" "alibaba" "elevenlabs" "cartesia"
];

const OTHER: &str = include_str!("../profiles/other.toml");

static KNOWN: LazyLock<Vendors> = LazyLock::new(|| {
    let other = Profile { reads_standard: true, ..parse("other", OTHER) };
    let known = Vendors { profiles: Vec::new(), other: Arc::new(other) };
    BUILTIN.iter().fold(known, |known, (name, text)| known.and(parse(name, text)))
});

/// A test reads each of them.
fn parse(name: &str, text: &str) -> Profile {
    Profile::parse(text).unwrap_or_else(|error| unreachable!("the profile of {name}: {error}"))
}

impl Vendors {
    /// The vendors whose profiles are compiled in.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &KNOWN
    }

    /// The same with another profile, which takes the place of a profile of the same vendor.
    ///
    /// # Errors
    /// [`ProfileError`]: what is wrong with the text.
    pub fn with(self, text: &str) -> Result<Self, ProfileError> {
        Ok(self.and(Profile::parse(text)?))
    }

    fn and(mut self, mut profile: Profile) -> Self {
        self.profiles.retain(|known| known.vendor != profile.vendor);
        profile.refusals.extend(self.other.refusals.iter().cloned());
        if profile.quotas.is_empty() {
            profile.quotas.clone_from(&self.other.quotas);
            profile.reads_standard = true;
        }
        self.profiles.push(Arc::new(profile));
        self
    }

    /// The vendor that the first part of a bucket's name gives, in upper or lower case. For a name that is
    /// not known, [`Vendors::other`].
    #[must_use]
    pub fn of(&self, dimension: &Dimension) -> &Arc<Profile> {
        let name = dimension.as_str().split('#').next().unwrap_or_default();
        self.named(name).unwrap_or(&self.other)
    }

    /// The vendor of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.iter().rev().find(|profile| profile.is_named(name))
    }

    /// The vendor that answers at this host.
    #[must_use]
    pub fn at(&self, host: &str) -> Option<&Arc<Profile>> {
        self.profiles.iter().rev().find(|profile| profile.is_at(host))
    }

    /// A vendor that is not known: whichever family of headers is present is read, and nothing else is
    /// assumed.
    #[must_use]
    pub fn other(&self) -> &Arc<Profile> {
        &self.other
    }

    /// The profiles of all known vendors.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.profiles.iter()
    }
}

impl Default for Vendors {
    fn default() -> Self {
        Self::builtin().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_the_name_is_the_vendor() {
        let of = |name: &str| Vendors::builtin().of(&Dimension::new(name).unwrap()).vendor.clone();
        assert_eq!(of("openai#rpm"), "openai");
        assert_eq!(of("OpenAI#gpt-4o#tpm"), "openai");
        assert_eq!(of("azure-openai#rpm"), "azure");
        assert_eq!(of("google#rpm"), "gemini");
        assert_eq!(of("acme#openai#rpm"), "other");
        assert_eq!(of("openai-eu#rpm"), "other");
    }

    #[test]
    fn an_own_profile_takes_the_place_of_the_one_that_is_compiled_in() {
        let own = Vendors::default().with("vendor = \"openai\"\nhosts = [\"llm.example.com\"]").unwrap();
        assert_eq!(own.at("llm.example.com").unwrap().vendor, "openai");
        assert!(own.named("openai").unwrap().reads_standard, "it has no headers of its own");
        assert_eq!(own.all().filter(|profile| profile.vendor == "openai").count(), 1);
        let error = Vendors::default().with("vendor = \"a#b\"").unwrap_err().to_string();
        assert!(error.contains("\"a#b\""), "{error}");
    }
}
