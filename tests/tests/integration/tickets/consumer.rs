//! A consumer of a queue whose messages carry tickets over several dimensions, beside one that acquires
//! again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use sluice_sdk::{Grant, Outcome};
use tokio::time::{Instant, sleep};

use super::*;
use crate::world::take;

const RPD: &str = "openai#rpd";
const SLOT: &str = "openai#concurrent";
const DAY: u64 = 86_400;
/// A job's tokens. Each full bucket below refills what a job takes once a second.
const COST: i32 = 1_000;

/// Which bucket is drained. The others have room for ten times as many jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Rpm,
    Tpm,
    Rpd,
}

/// The buckets of a job: two, or three with the last of these.
#[derive(Clone, Copy, Debug)]
enum Third {
    None,
    Rpd,
    Slot,
}

async fn world_of(full: Full) -> World {
    let world = World::new().await;
    let times = |bucket: Full| if bucket == full { 1 } else { 10 };
    world.rate(RPM, 60 * times(Full::Rpm), 60).await;
    world.tokens(TPM, 60 * COST * times(Full::Tpm), 60).await;
    world.rate(RPD, 86_400 * times(Full::Rpd), DAY).await;
    world.slots(SLOT, 5).await;
    let client = world.client();
    let (name, all) = match full {
        Full::Rpm => (RPM, 60),
        Full::Tpm => (TPM, 60 * COST),
        Full::Rpd => (RPD, 86_400),
    };
    let _ = take(&client, Request::from(name).cost(name, all)).await;
    world
}

fn job(third: Third) -> Request<'static> {
    let names: &[&str] = match third {
        Third::None => &[RPM, TPM],
        Third::Rpd => &[RPM, TPM, RPD],
        Third::Slot => &[RPM, TPM, SLOT],
    };
    Request::from(names).cost(TPM, COST)
}

/// A message of a queue.
#[derive(Debug)]
struct Message {
    visible_at: Instant,
    ticket: Option<String>,
}

#[derive(Debug, Default)]
struct Counts {
    refusals: u32,
    tickets: u32,
    redeemed: u32,
    finished: u32,
}

/// Eight workers on four processes, and a queue of 24 jobs.
struct Consumer {
    queue: Mutex<VecDeque<Message>>,
    counts: Mutex<Counts>,
    third: Third,
    within: Option<Duration>,
}

const JOBS: u32 = 24;

impl Consumer {
    async fn run(world: &World, third: Third, within: Option<Duration>) -> (Counts, Duration) {
        let began = Instant::now();
        let message = || Message { visible_at: began, ticket: None };
        let queue = Mutex::new((0..JOBS).map(|_| message()).collect());
        let consumer = Arc::new(Self { queue, counts: Mutex::default(), third, within });
        let clients: Vec<Client> = (0..4).map(|_| world.client()).collect();
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let (consumer, client) = (Arc::clone(&consumer), clients[worker % 4].clone());
                tokio::spawn(async move { consumer.work(&client).await })
            })
            .collect();
        for worker in workers {
            worker.await.unwrap();
        }
        let counts = std::mem::take(&mut *consumer.counts.lock().unwrap());
        (counts, began.elapsed())
    }

    async fn work(&self, client: &Client) {
        while self.counts.lock().unwrap().finished < JOBS {
            let Some(message) = self.receive() else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            if let Some(grant) = self.start(client, message).await {
                sleep(Duration::from_secs(2)).await;
                grant.release().await.unwrap();
                self.counts.lock().unwrap().finished += 1;
            }
        }
    }

    fn receive(&self) -> Option<Message> {
        let mut queue = self.queue.lock().unwrap();
        let at = queue.iter().position(|message| message.visible_at <= Instant::now())?;
        queue.remove(at)
    }

    async fn start(&self, client: &Client, message: Message) -> Option<Grant> {
        if let Some(ticket) = &message.ticket {
            match redeem(client, &ticket.parse().unwrap()).await {
                Redeemed::Granted(grant) => {
                    self.counts.lock().unwrap().redeemed += 1;
                    return Some(grant);
                }
                Redeemed::RetryIn(retry) => {
                    self.later(&retry);
                    return None;
                }
                Redeemed::Spent => panic!("each message is delivered once"),
                _ => {}
            }
        }
        let request = job(self.third);
        let request = self.within.map_or(request.clone(), |within| request.ticket_within(within));
        match client.acquire(request).await.unwrap() {
            Outcome::Granted(grant) => Some(grant),
            Outcome::RetryIn(retry) => {
                assert_eq!(retry.ticket().is_some(), self.within.is_some(), "{retry}");
                let mut counts = self.counts.lock().unwrap();
                counts.refusals += 1;
                counts.tickets += u32::from(retry.ticket().is_some());
                drop(counts);
                self.later(&retry);
                None
            }
        }
    }

    fn later(&self, retry: &RetryIn) {
        let visible_at = Instant::now() + retry.wait();
        let ticket = retry.ticket().map(ToString::to_string);
        self.queue.lock().unwrap().push_back(Message { visible_at, ticket });
    }
}

/// A ticket for each refusal, nearly all redeemed in time, and no slower than work that acquires again.
#[tokio::test(start_paused = true)]
async fn with_any_bucket_full_each_refusal_has_a_ticket_and_the_work_is_done_no_later() {
    for (full, third) in [
        (Full::Rpm, Third::None),
        (Full::Tpm, Third::None),
        (Full::Rpm, Third::Rpd),
        (Full::Tpm, Third::Rpd),
        (Full::Rpd, Third::Rpd),
        (Full::Rpm, Third::Slot),
        (Full::Tpm, Third::Slot),
    ] {
        let told = format!("{full:?} full, third {third:?}");
        let (without, slow) = Consumer::run(&world_of(full).await, third, None).await;
        let (with, fast) = Consumer::run(&world_of(full).await, third, Some(Duration::from_secs(300))).await;
        assert_eq!((without.finished, with.finished), (JOBS, JOBS), "{told}");
        assert!(with.refusals > JOBS / 2 && with.tickets == with.refusals, "{told}: {with:?}");
        assert!(with.redeemed * 100 >= with.tickets * 98, "{told}: {with:?}");
        assert!(fast <= slow, "{told}: {fast:?} with tickets, {slow:?} without");
    }
}
