//! `sluice` without a command: what to do next, here.

use crate::output::{BOLD, DIM};

/// What the environment says.
pub(crate) fn print() {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let table = set("SLUICE_TABLE_NAME").or_else(|| set("SLUICE_ENV"));
    let at = set("SLUICE_ENDPOINT_URL");
    for line in lines(table.as_deref(), at.as_deref()) {
        let Line { command, what } = line;
        match command {
            "" => anstream::println!("{what}"),
            _ => anstream::println!(
                "  {}{command:<26}{} {}{what}{}",
                BOLD.render(),
                BOLD.render_reset(),
                DIM.render(),
                DIM.render_reset()
            ),
        }
    }
}

struct Line {
    command: &'static str,
    what: String,
}

fn of(command: &'static str, what: &str) -> Line {
    Line { command, what: what.to_owned() }
}

/// `table` is what names the table, if anything does.
fn lines(table: Option<&str>, at: Option<&str>) -> Vec<Line> {
    let mut lines = vec![of("", "Sluice shares one vendor's quota between many products."), of("", "")];
    match table {
        None => {
            lines.push(of("", "No table is named here yet (SLUICE_ENV, SLUICE_TABLE_NAME). To begin:"));
            lines.push(of("", ""));
            if cfg!(feature = "lab") {
                lines.push(of("sluice demo", "see it work: callers, vendors, a crash, a verdict"));
                lines.push(of("sluice sandbox", "a table on this machine, and the variables to set"));
            }
            lines.push(of("sluice init", "limits, Terraform variables and a line of code"));
        }
        Some(table) => {
            let at = at.map(|at| format!(", at {at}")).unwrap_or_default();
            lines.push(of("", &format!("The environment names {table}{at}. To see what it is like:")));
            lines.push(of("", ""));
            lines.push(of("sluice doctor", "check it for problems"));
            lines.push(of("sluice watch", "every bucket, live"));
            lines.push(of("sluice buckets list", "limits and levels"));
            lines.push(of("sluice buckets apply FILE", "declare limits"));
        }
    }
    lines.push(of("sluice --help", "every command"));
    lines
}
