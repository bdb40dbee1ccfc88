//! Counts over time in one line of characters.

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One character for each count, by its share of `most`; a count above zero is always seen.
pub(crate) fn spark(counts: &[usize], most: usize) -> String {
    counts.iter().map(|count| EIGHTHS[(count * 8).div_ceil(most.max(1)).min(8)]).collect()
}

#[cfg(test)]
mod tests {
    use super::spark;

    #[test]
    fn one_of_many_is_seen() {
        assert_eq!(spark(&[0, 1, 50, 100], 100), " ▁▄█");
        assert_eq!(spark(&[0, 0], 0), "  ");
    }
}
