//! A Lambda function behind SQS. What may start soon waits inside the function; what starts later goes back
//! into the queue with its booked start; what fails comes again, alone of its batch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::future::join_all;
use lambda_runtime::LambdaEvent;
use sluice_examples::queue::Queue;
use sluice_examples::{BoxError, Vendor, sluice};
use sluice_sdk::{Client, Decision, Dimension, Outcome, Request, Ticket};
use tokio::time::sleep;

const RPM: Dimension = Dimension::constant("acme#rpm");
const TPM: Dimension = Dimension::constant("acme#tpm");
/// Before the function's timeout: a call that runs, and its release.
const END: Duration = Duration::from_secs(2);

struct Function {
    sluice: Client,
    vendor: Vendor,
    queue: Queue,
    counts: [AtomicUsize; 4],
}

/// What happened to a message: an index of `counts`.
#[derive(Clone, Copy)]
enum Step {
    Called,
    WaitedInside,
    PutBack,
    PutBackWithoutTicket,
}

impl Function {
    /// `main` of the function in AWS is
    /// `lambda_runtime::run(service_fn(|event| function.handle(event))).await`.
    async fn handle(&self, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, lambda_runtime::Error> {
        let until = event.context.deadline() - END;
        let failed = join_all(event.payload.records.iter().map(async |message| {
            let failed = self.work(message, until).await.is_err();
            failed.then(|| message.message_id.clone().unwrap_or_default())
        }));
        let mut response = SqsBatchResponse::default();
        failed.await.into_iter().flatten().for_each(|id| response.add_failure(id));
        Ok(response)
    }

    async fn work(&self, message: &SqsMessage, until: SystemTime) -> Result<(), BoxError> {
        let text = message.body.as_deref().unwrap_or_default();
        let attribute =
            message.message_attributes.get("ticket").and_then(|ticket| ticket.string_value.as_deref());
        let mut ticket: Option<Ticket> = attribute.and_then(|text| text.parse().ok());
        loop {
            // A refusal books a start. The next round, here or in the next delivery, comes with it and keeps
            // its place.
            let request = Request::from([RPM, TPM]).cost(TPM, text.len() + 20);
            let request = request.ticket_within(Duration::from_secs(900)).with_ticket(ticket.take());
            let (wait, delay_seconds) = match self.sluice.acquire(request).await? {
                Outcome::Granted(mut grant) => {
                    let (parts, answer) = self.vendor.ask(text).await?.into_parts();
                    let replied = grant.reply(&parts, (TPM, answer.used)).await?;
                    grant.release().await?;
                    match (replied.decision, replied.decision.delay_seconds()) {
                        (Decision::NotRefused, _) if parts.status.is_success() => {
                            self.count(Step::Called);
                            return Ok(());
                        }
                        (refused, Some(seconds)) => (refused.wait().unwrap_or_default(), seconds),
                        _ => return Err(format!("the vendor answered {}", parts.status).into()),
                    }
                }
                Outcome::RetryIn(retry) => {
                    ticket = retry.ticket().cloned();
                    (retry.wait(), retry.delay_seconds())
                }
            };
            if wait > self.sluice.inline_retry_threshold() || SystemTime::now() + wait > until {
                let step = if ticket.is_some() { Step::PutBack } else { Step::PutBackWithoutTicket };
                self.queue.send(text, delay_seconds, ticket.map(|ticket| ticket.to_string())).await;
                self.count(step);
                return Ok(());
            }
            self.count(Step::WaitedInside);
            sleep(wait).await;
        }
    }

    fn count(&self, step: Step) {
        self.counts[step as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the result of the example")]
async fn main() -> Result<(), BoxError> {
    // Tickets need a bucket that takes more than a second to fill: a late ticket would be worth nothing in a
    // smaller one.
    let window = Duration::from_secs(3);
    let vendor = Vendor::new(window, 60, 60_000);
    let sluice = sluice(window, (RPM, 60), (TPM, 60_000)).await?;
    let function = Function { sluice, vendor, queue: Queue::default(), counts: Default::default() };
    for at in 0..120 {
        function.queue.send(&format!("job number {at}"), 0, None).await;
    }
    // The vendor answers an empty prompt with 400.
    function.queue.send("", 0, None).await;
    let dead = function.queue.drain(12, async |event| function.handle(event).await).await;
    function.sluice.close(Duration::from_secs(5)).await;
    let refused = function.vendor.refused().await.above;
    let [called, waited, put_back, without] = function.counts.map(AtomicUsize::into_inner);
    println!(
        "{called} jobs done: {waited} waits inside the function, {put_back} put back with a ticket, {without} without"
    );
    println!("{dead} dead letter, {refused} refused by the vendor");
    assert_eq!((called, dead, refused), (120, 1, 0));
    assert!(waited > 0 && put_back > 0, "a short wait is slept through, a long one goes back");
    Ok(())
}
