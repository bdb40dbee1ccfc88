//! The vendor whose limits a bucket follows.

use sluice_core::Dimension;

/// The vendor whose limits a bucket follows. It decides which headers are read, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vendor {
    /// OpenAI.
    OpenAi,
    /// OpenAI's models, served by Azure.
    AzureOpenAi,
    /// Anthropic.
    Anthropic,
    /// ElevenLabs.
    ElevenLabs,
    /// Google's Gemini.
    Gemini,
    /// Groq.
    Groq,
    /// Any other vendor: whichever family of headers is present is read, and no window is assumed.
    Other,
}

impl Vendor {
    /// The vendor that the first part of a bucket's name gives, without regard to case: `openai`, `azure` or
    /// `azure-openai`, `anthropic`, `elevenlabs`, `gemini` or `google`, `groq`. Every other name is
    /// [`Vendor::Other`].
    #[must_use]
    pub fn of(dimension: &Dimension) -> Self {
        const NAMES: &[(&str, Vendor)] = &[
            ("openai", Vendor::OpenAi),
            ("azure", Vendor::AzureOpenAi),
            ("azure-openai", Vendor::AzureOpenAi),
            ("azure_openai", Vendor::AzureOpenAi),
            ("anthropic", Vendor::Anthropic),
            ("elevenlabs", Vendor::ElevenLabs),
            ("gemini", Vendor::Gemini),
            ("google", Vendor::Gemini),
            ("groq", Vendor::Groq),
        ];
        let name = dimension.as_str().split('#').next().unwrap_or_default();
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or(Self::Other, |(_, vendor)| *vendor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_the_name_is_the_vendor() {
        let of = |name: &str| Vendor::of(&Dimension::new(name).unwrap());
        assert_eq!(of("openai#rpm"), Vendor::OpenAi);
        assert_eq!(of("OpenAI#gpt-4o#tpm"), Vendor::OpenAi);
        assert_eq!(of("azure-openai#rpm"), Vendor::AzureOpenAi);
        assert_eq!(of("google#rpm"), Vendor::Gemini);
        assert_eq!(of("mistral#openai#rpm"), Vendor::Other);
        assert_eq!(of("openai-eu#rpm"), Vendor::Other);
    }
}
