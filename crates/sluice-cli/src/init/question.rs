//! A question with a few answers, on the terminal.

use std::io::{BufRead, Write};

use crate::failure::Failure;

/// Asks until one of `choices` is named, or its number.
pub(super) fn ask(question: &str, choices: &[String]) -> Result<String, Failure> {
    ask_on(&mut std::io::stdin().lock(), &mut std::io::stderr(), question, choices)
}

fn ask_on(
    input: &mut impl BufRead,
    output: &mut impl Write,
    question: &str,
    choices: &[String],
) -> Result<String, Failure> {
    writeln!(output, "{question}")?;
    for (n, choice) in choices.iter().enumerate() {
        writeln!(output, "  {:>2}  {choice}", n + 1)?;
    }
    loop {
        write!(output, "> ")?;
        output.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            return Err(Failure::new("nothing was written: the input ended before the answer"));
        }
        match chosen(answer.trim(), choices) {
            Some(choice) => return Ok(choice.clone()),
            None => {
                let said = match answer.trim() {
                    "" => "nothing was typed".to_owned(),
                    answer => format!("{answer:?} is not in the list"),
                };
                let example = choices.first().map(String::as_str).unwrap_or_default();
                writeln!(
                    output,
                    "{said}: type a name, as in {example}, or a number from 1 to {}",
                    choices.len()
                )?;
            }
        }
    }
}

fn chosen<'a>(answer: &str, choices: &'a [String]) -> Option<&'a String> {
    // What follows a colon explains the choice.
    let name = |choice: &str| choice.split(": ").next().unwrap_or_default().to_owned();
    let by_name = choices.iter().find(|choice| name(choice).eq_ignore_ascii_case(answer));
    let by_number = || choices.get(answer.parse::<usize>().ok()?.checked_sub(1)?);
    by_name.or_else(by_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_asked_until_it_has_an_answer() {
        let choices = ["Free", "Tier 1", "another: yours"].map(str::to_owned);
        for (input, answer) in [
            ("tier 1\n", "Tier 1"),
            ("5\n\n1\n", "Free"),
            ("another\n", "another: yours"),
            ("3\n", "another: yours"),
        ] {
            let mut output = Vec::new();
            assert_eq!(ask_on(&mut input.as_bytes(), &mut output, "Which?", &choices).unwrap(), answer);
            let said = String::from_utf8(output).unwrap();
            assert!(said.starts_with("Which?\n   1  Free\n   2  Tier 1\n"), "{said}");
            assert_eq!(
                said.matches("type a name, as in Free, or a number from 1 to 3").count(),
                input.lines().count() - 1
            );
        }
        let mut output = Vec::new();
        ask_on(&mut "\n5\nFree\n".as_bytes(), &mut output, "Which?", &choices).unwrap();
        let said = String::from_utf8(output).unwrap();
        assert!(
            said.contains("> nothing was typed: type") && said.contains("> \"5\" is not in the list: type"),
            "{said}"
        );
        assert!(ask_on(&mut "".as_bytes(), &mut Vec::new(), "Which?", &choices).is_err());
    }
}
