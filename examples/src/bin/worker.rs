//! A Lambda function behind a queue: jobs that the limits refuse go back into the queue with their booked start.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use sluice_examples::{BoxError, Vendor, sluice};
use sluice_sdk::{Client, Dimension, Outcome, Request, Ticket};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

const RPM: Dimension = Dimension::constant("acme#rpm");
const TPM: Dimension = Dimension::constant("acme#tpm");

/// A message. The ticket travels in one of its attributes.
#[derive(Debug)]
struct Job {
    text: String,
    ticket: Option<Ticket>,
}

async fn handle(sluice: &Client, vendor: &Vendor, queue: &Queue, mut job: Job) -> Result<(), BoxError> {
    let request = Request::from([RPM, TPM]).cost(TPM, job.text.len() + 20);
    let request = request.ticket_within(Duration::from_secs(900)).with_ticket(job.ticket.take());
    let mut grant = match sluice.acquire(request).await? {
        Outcome::Granted(grant) => grant,
        Outcome::RetryIn(retry) => return queue.send(job.with(retry.ticket()), retry.delay_seconds()).await,
    };
    let (parts, answer) = vendor.ask(&job.text).await?.into_parts();
    let replied = grant.reply(&parts, (TPM, answer.used)).await?;
    grant.release().await?;
    if let Some(seconds) = replied.decision.delay_seconds() {
        return queue.send(job, seconds).await;
    }
    if !parts.status.is_success() {
        // The queue delivers the message again, or moves it to the dead letters.
        return Err(format!("the vendor answered {}", parts.status).into());
    }
    queue.finished().await
}

impl Job {
    fn with(self, ticket: Option<&Ticket>) -> Self {
        Self { ticket: ticket.cloned(), ..self }
    }
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the result of the example")]
async fn main() -> Result<(), BoxError> {
    let sluice = sluice(RPM, 20, TPM, 20_000).await?;
    let (vendor, queue) = (Arc::new(Vendor::new(20, 20_000)), Arc::new(Queue::default()));
    for at in 0..100 {
        queue.send(Job { text: format!("job number {at}"), ticket: None }, 0).await?;
    }
    let workers = (0..8).map(|_| {
        let (sluice, vendor, queue) = (sluice.clone(), Arc::clone(&vendor), Arc::clone(&queue));
        tokio::spawn(async move {
            while queue.done().await < 100 {
                match queue.receive().await {
                    Some(job) => handle(&sluice, &vendor, &queue, job).await?,
                    None => sleep(Duration::from_millis(20)).await,
                }
            }
            Ok::<_, BoxError>(())
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    sluice.close(Duration::from_secs(5)).await;
    println!("{} jobs done, {} refused by the vendor", queue.done().await, vendor.refused().await);
    Ok(())
}

/// A queue with delays, in place of SQS.
#[derive(Debug, Default)]
struct Queue(Mutex<Messages>);

#[derive(Debug, Default)]
struct Messages {
    waiting: BinaryHeap<Message>,
    finished: usize,
}

#[derive(Debug)]
struct Message(Instant, Job);

impl Queue {
    async fn send(&self, job: Job, delay_seconds: u32) -> Result<(), BoxError> {
        let due = Instant::now() + Duration::from_secs(delay_seconds.into());
        self.0.lock().await.waiting.push(Message(due, job));
        Ok(())
    }

    async fn receive(&self) -> Option<Job> {
        let mut messages = self.0.lock().await;
        messages.waiting.peek().filter(|message| message.0 <= Instant::now())?;
        messages.waiting.pop().map(|Message(_, job)| job)
    }

    async fn finished(&self) -> Result<(), BoxError> {
        self.0.lock().await.finished += 1;
        Ok(())
    }

    /// How many jobs are done.
    async fn done(&self) -> usize {
        self.0.lock().await.finished
    }
}

/// The message that is due first is the greatest.
impl Ord for Message {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.cmp(&self.0)
    }
}

impl PartialOrd for Message {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Message {}
