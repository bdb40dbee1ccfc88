//! What a vendor answered, and when: each call counts once, as taken or as 429.

use std::time::Duration;

use tokio::time::Instant;

/// Every call that arrived, in order.
#[derive(Debug, Default)]
pub(crate) struct Answers(Vec<(Instant, Answer)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Taken,
    /// 429.
    Refused,
}

impl Answers {
    pub(super) fn note(&mut self, now: Instant, answer: Answer) {
        self.0.push((now, answer));
    }

    /// How many calls got this answer.
    pub(crate) fn count(&self, answer: Answer) -> usize {
        self.0.iter().filter(|(_, given)| *given == answer).count()
    }

    /// How many calls that arrived in `length` after `from` got this answer, in each of `parts` equal parts
    /// of it.
    pub(crate) fn over_time(
        &self,
        answer: Answer,
        from: Instant,
        length: Duration,
        parts: usize,
    ) -> Vec<usize> {
        let mut counts = vec![0; parts];
        for (at, _) in
            self.0.iter().filter(|(at, given)| *given == answer && *at >= from && *at < from + length)
        {
            let part = (*at - from).as_nanos() * parts as u128 / length.as_nanos();
            counts[usize::try_from(part).unwrap_or(0)] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_in_its_part_of_the_time_by_its_answer() {
        let (mut answers, start) = (Answers::default(), Instant::now());
        for (millis, answer) in
            [(0, Answer::Taken), (999, Answer::Refused), (1_000, Answer::Refused), (1_500, Answer::Taken)]
        {
            answers.note(start + Duration::from_millis(millis), answer);
        }
        let two_secs = |answer| answers.over_time(answer, start, Duration::from_secs(2), 2);
        assert_eq!((two_secs(Answer::Taken), two_secs(Answer::Refused)), (vec![1, 1], vec![1, 1]));
        let later =
            answers.over_time(Answer::Refused, start + Duration::from_secs(1), Duration::from_millis(1), 1);
        assert_eq!(later, [1], "the end is outside");
    }
}
