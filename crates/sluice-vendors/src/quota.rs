//! The vendor's quota that a bucket stands for.

use serde::Deserialize;
use sluice_core::{Dimension, LimitType};

/// One of a vendor's quotas, as the vendor's headers distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Quota {
    /// Calls in a window of time.
    Requests,
    /// Tokens in a window of time, input and output together.
    Tokens,
    /// Input tokens in a window of time.
    InputTokens,
    /// Output tokens in a window of time.
    OutputTokens,
    /// Tokens in a window of time, of one project. Separate from [`Quota::Tokens`]: otherwise a product whose
    /// project has used up its share would lower a bucket that other products share.
    ProjectTokens,
    /// Input tokens in a window of time, of a capacity that was paid for ahead.
    PriorityInputTokens,
    /// Output tokens in a window of time, of a capacity that was paid for ahead.
    PriorityOutputTokens,
    /// Calls at the same time.
    Concurrency,
}

impl Quota {
    /// The quota that a bucket with this name and type stands for.
    ///
    /// The last part of the name distinguishes kinds of tokens. `itpm`, `itpd` and what begins with `input`
    /// are input tokens; `otpm`, `otpd` and what begins with `output` are output tokens; what begins with
    /// `project` are tokens of a project; what begins with `priority_itpm`, `priority_input` or the same of
    /// output are tokens of a priority tier; all others are tokens of both directions.
    #[must_use]
    pub fn of(dimension: &Dimension, limit_type: LimitType) -> Self {
        match limit_type {
            LimitType::Requests => Self::Requests,
            LimitType::Concurrent => Self::Concurrency,
            LimitType::Tokens => Self::of_tokens(dimension),
        }
    }

    /// Whether what is said of this quota concerns `other`. What is said of tokens concerns those of every
    /// kind.
    #[must_use]
    pub fn includes(self, other: Self) -> bool {
        let is_of_tokens = !matches!(other, Self::Requests | Self::Concurrency);
        self == other
            || (self == Self::Tokens && is_of_tokens)
            || (other == Self::Tokens && self.is_directed())
    }

    const fn is_directed(self) -> bool {
        matches!(self, Self::InputTokens | Self::OutputTokens)
    }

    fn of_tokens(dimension: &Dimension) -> Self {
        const BEGINNINGS: &[(&str, Quota)] = &[
            ("input", Quota::InputTokens),
            ("itpm", Quota::InputTokens),
            ("itpd", Quota::InputTokens),
            ("output", Quota::OutputTokens),
            ("otpm", Quota::OutputTokens),
            ("otpd", Quota::OutputTokens),
            ("project", Quota::ProjectTokens),
            ("priority_i", Quota::PriorityInputTokens),
            ("priority-i", Quota::PriorityInputTokens),
            ("priority_o", Quota::PriorityOutputTokens),
            ("priority-o", Quota::PriorityOutputTokens),
        ];
        let metric = dimension.as_str().rsplit('#').next().unwrap_or_default();
        let begins =
            |with: &str| metric.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
        BEGINNINGS.iter().find(|(with, _)| begins(with)).map_or(Self::Tokens, |(_, quota)| *quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_name_tells_kinds_of_tokens_apart() {
        let of = |name: &str, limit_type| Quota::of(&Dimension::new(name).unwrap(), limit_type);
        for name in
            ["anthropic#itpm", "anthropic#claude-opus#input_tokens", "a#Input-Tokens-Per-Minute", "a#ITPM"]
        {
            assert_eq!(of(name, LimitType::Tokens), Quota::InputTokens, "{name}");
        }
        for name in ["anthropic#otpm", "anthropic#output-tokens"] {
            assert_eq!(of(name, LimitType::Tokens), Quota::OutputTokens, "{name}");
        }
        assert_eq!(of("openai#project_tpm", LimitType::Tokens), Quota::ProjectTokens);
        assert_eq!(of("anthropic#priority_itpm", LimitType::Tokens), Quota::PriorityInputTokens);
        assert_eq!(of("anthropic#priority-output-tokens", LimitType::Tokens), Quota::PriorityOutputTokens);
        assert_eq!(of("openai#tpm", LimitType::Tokens), Quota::Tokens);
        assert_eq!(of("input#tpm", LimitType::Tokens), Quota::Tokens, "the first part is the vendor");
        assert_eq!(of("v#é", LimitType::Tokens), Quota::Tokens);
        assert_eq!(of("anthropic#itpm", LimitType::Requests), Quota::Requests, "the type decides first");
        assert_eq!(of("elevenlabs#concurrent", LimitType::Concurrent), Quota::Concurrency);
    }
}
