//! Processor time and memory of this process, as Linux reports them. They are not measured on other systems.

use std::time::Duration;

/// The kernel reports processor time to programs in hundredths of a second, whatever its own clock.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time of all threads, in user mode and kernel mode.
pub(crate) fn processor_time() -> Option<Duration> {
    cpu_of(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Resident memory, in KB.
pub(crate) fn resident_kb() -> Option<u64> {
    resident_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Fields 14 and 15 of `proc_pid_stat(5)`. The second field, the name in parentheses, may contain anything.
fn cpu_of(stat: &str) -> Option<Duration> {
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "42 (a (strange) name) S 1 2 3 4 5 6 7 8 9 10 123 77 0 0 20 0 1 0";
        assert_eq!(cpu_of(stat), Some(Duration::from_millis(2_000)));
        assert_eq!(resident_of("VmPeak:\t  9 kB\nVmRSS:\t  1234 kB\n"), Some(1_234));
    }
}
