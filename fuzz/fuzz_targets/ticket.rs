//! Tickets: one text, one ticket.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_core::Ticket;

fuzz_target!(|text: &str| {
    match text.parse::<Ticket>() {
        Ok(ticket) => {
            assert_eq!(ticket.to_string(), text);
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_~".contains(&byte)),
                "{text:?}"
            );
            assert!(ticket.key().starts_with("ticket#") && ticket.start_at() <= ticket.use_by());
            assert!((1..=50).contains(&ticket.dimensions().len()));
        }
        Err(error) => {
            assert_eq!(error.text, text);
            assert!(error.to_string().contains(error.reason));
        }
    }
});
