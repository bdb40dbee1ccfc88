//! Reads a profile, and checks what the format alone does not.

use super::{Profile, RefusalRule};

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The text is not a profile.
    #[error("it is no vendor profile: {0}")]
    Format(#[from] toml::de::Error),
    /// A name that would never be found: a part of a bucket's name has no `#`.
    #[error("{0:?} cannot be a vendor's name: take the part of a bucket's name before its first #")]
    Name(String),
    /// A host that would never be found.
    #[error("the host {0:?} must be in lower case and may have one * at most")]
    Host(String),
    /// A header name that would never be found.
    #[error("the header name {0:?} must be in lower case")]
    HeaderName(String),
    /// A rule that would fit every refusal.
    #[error("a refusal rule ({0}) has no condition: give it a status, code, message or quota")]
    NoCondition(String),
    /// A fact without its page.
    #[error("the source {0:?} must be the address of a page, as in https://example.com/limits")]
    Source(String),
}

impl Profile {
    /// Reads a profile from TOML. `profiles/openai.toml` in the source shows the format.
    ///
    /// # Errors
    /// [`ProfileError`]: the first fault of the text.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), ProfileError> {
        let mut names = std::iter::once(&self.vendor).chain(&self.also);
        if let Some(name) = names.find(|name| name.is_empty() || name.contains('#')) {
            return Err(ProfileError::Name(name.clone()));
        }
        let is_never_found = |host: &&String| {
            host.bytes().any(|byte| byte.is_ascii_uppercase()) || host.matches('*').count() > 1
        };
        if let Some(host) = self.hosts.iter().find(is_never_found) {
            return Err(ProfileError::Host(host.clone()));
        }
        let mut headers = self.quotas.iter().flat_map(super::QuotaHeaders::names);
        if let Some(name) = headers.find(|name| name.bytes().any(|byte| byte.is_ascii_uppercase())) {
            return Err(ProfileError::HeaderName(name.to_owned()));
        }
        if let Some(rule) = self.refusals.iter().find(|rule| rule.is_of_everything()) {
            return Err(ProfileError::NoCondition(rule.source.clone()));
        }
        if let Some(source) = self.sources().find(|source| !source.starts_with("https://")) {
            return Err(ProfileError::Source(source.to_owned()));
        }
        Ok(())
    }

    /// The pages of all facts.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        let quotas = self.quotas.iter().map(|quota| &quota.source);
        let tokens = self.tokens.iter().map(|tokens| &tokens.source);
        let failed = self.failed.iter().map(|failed| &failed.source);
        let enforced = self.enforced.iter().map(|enforced| &enforced.source);
        let refusals = self.refusals.iter().map(|rule| &rule.source);
        let limits = self.limits.iter().map(|limit| &limit.source);
        quotas.chain(tokens).chain(failed).chain(enforced).chain(refusals).chain(limits).map(String::as_str)
    }
}

impl RefusalRule {
    const fn is_of_everything(&self) -> bool {
        self.status.is_none() && self.code.is_none() && self.message.is_none() && self.quota.is_none()
    }
}
