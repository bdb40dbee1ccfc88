//! `sluice acquire`: acquires, holds, releases.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sluice_sdk::{Basis, Client, Grant, Outcome, Released, Request, RetryIn, RetryReason};
use tokio::time::{Instant, sleep_until};

use crate::connect::client;
use crate::duration::{duration, exact_wait};
use crate::failure::{Ended, Failure, TRY_AGAIN};
use crate::output::{self, GREEN, YELLOW};
use crate::signals::stop_requested;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Buckets, as in openai#rpm; openai#tpm=1200 takes 1200 from it
    #[arg(required = true, value_name = "DIMENSION")]
    dimensions: Vec<String>,
    /// Hold for this time before the release, as in 5s; Ctrl-C releases sooner
    #[arg(long, value_name = "TIME", value_parser = hold_time, default_value = "0s")]
    hold: Duration,
    /// The share that pays, rather than SLUICE_SHARE; `common` is the part that no share has
    #[arg(long)]
    share: Option<String>,
    /// If no start is free now, book one up to this time ahead, and print its ticket, as in 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ticket_within: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A day: a longer time is probably a wrong unit.
const LONGEST_HOLD: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a held grant is checked for a lost lease.
const LOOK: Duration = Duration::from_secs(1);

/// The time of `--hold`.
pub(crate) fn hold_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time > LONGEST_HOLD => Err("it must be at most 24h".to_owned()),
        time => Ok(time),
    }
}

/// Parses names with costs: `openai#tpm=1200`.
pub(crate) fn request(dimensions: &[String]) -> Result<Request<'_>, Failure> {
    let parts = dimensions.iter().map(|text| match text.split_once('=') {
        Some((name, cost)) => {
            let cost: f64 = cost
                .parse()
                .map_err(|_| Failure::new(format!("{text}: the cost {cost:?} is not a number")))?;
            Ok((name, Some(cost)))
        }
        None => Ok((text.as_str(), None)),
    });
    let parts: Vec<_> = parts.collect::<Result<_, Failure>>()?;
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    let costs = parts.iter().filter_map(|(name, cost)| cost.map(|cost| (*name, cost)));
    Ok(costs.fold(Request::from(names), |request, (name, cost)| request.cost(name, cost)))
}

/// The same request, paid by this share.
pub(crate) fn of_share<'a>(request: Request<'a>, share: Option<&'a str>) -> Request<'a> {
    share.into_iter().fold(request, Request::share)
}

pub(crate) async fn run(options: Options) -> Ended {
    let client = client().await?;
    let mut request = of_share(request(&options.dimensions)?, options.share.as_deref());
    if let Some(within) = options.ticket_within {
        request = request.ticket_within(within);
    }
    let asked = names(&options.dimensions);
    match client.acquire(request).await? {
        Outcome::Granted(grant) => hold_and_release(&client, grant, &asked, options.hold, options.json).await,
        Outcome::RetryIn(retry) => refuse(&client, &retry, &asked, options.json).await,
    }
}

/// The names without costs.
fn names(dimensions: &[String]) -> Vec<String> {
    dimensions.iter().map(|text| text.split('=').next().unwrap_or_default().to_owned()).collect()
}

pub(crate) async fn hold_and_release(
    client: &Client,
    grant: Grant,
    asked: &[String],
    time: Duration,
    json: bool,
) -> Ended {
    let holds = Holds::of(client, &grant).await;
    let (basis, why) = basis(grant.basis());
    if !json {
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        anstream::println!("{}granted{} {}{why}", GREEN.render(), GREEN.render_reset(), asked.join(", "));
    }
    let grant = hold(grant, time).await;
    let released = grant.release().await?;
    if json {
        let released = holds.word(released);
        output::json(
            &json!({ "outcome": "granted", "dimensions": asked, "basis": basis, "released": released }),
        )?;
    } else {
        println!("{}", holds.note(released));
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of a basis in JSON, and what a person should know about it.
const fn basis(basis: Basis) -> (&'static str, Option<&'static str>) {
    match basis {
        Basis::Table => ("table", None),
        Basis::LocalShare => (
            "local_share",
            Some("from this process's share: DynamoDB is out, and SLUICE_ON_UNAVAILABLE is share"),
        ),
        Basis::Unchecked => {
            ("unchecked", Some("without a limit: DynamoDB is out, and SLUICE_ON_UNAVAILABLE is allow"))
        }
        Basis::Shadow => ("shadow", Some("in shadow mode: the limits would have said no")),
        _ => ("other", None),
    }
}

/// What a grant holds.
#[derive(Clone, Copy, Debug)]
struct Holds {
    slots: bool,
    tokens: bool,
}

impl Holds {
    /// Needs no request: the buckets of a grant are known.
    async fn of(client: &Client, grant: &Grant) -> Self {
        let mut holds = Self { slots: false, tokens: false };
        for dimension in grant.dimensions() {
            match client.limit(dimension.as_str()).await {
                Ok(Some(limit)) if limit.is_concurrent() => holds.slots = true,
                _ => holds.tokens = true,
            }
        }
        holds
    }

    /// What became of it, in JSON.
    const fn word(self, released: Released) -> &'static str {
        match (released, self.slots, self.tokens) {
            (Released::GivenBack, false, true) => "spent",
            (Released::GivenBack, false, false) => "nothing",
            _ => released.as_str(),
        }
    }

    /// What became of it.
    const fn note(self, released: Released) -> &'static str {
        match (released, self.slots, self.tokens) {
            (Released::LeaseGone, ..) => "the lease had ended, and a sweep gave the slot back",
            (Released::AlreadyCapped, ..) => "the bucket was full already: another client restored this slot",
            (_, true, true) => "released: the slots are free again, and the tokens stay spent",
            (_, true, false) => "released: the slots are free again",
            (_, false, true) => "done: the tokens stay spent, and flow back with time",
            (_, false, false) => "done: nothing was held",
        }
    }
}

/// What a person reads of a refusal.
pub(crate) fn refusal(retry: &RetryIn) -> String {
    let about = match retry.reason() {
        RetryReason::Exhausted | RetryReason::CoolingDown => "",
        _ => "about ",
    };
    let (reason, wait) = (retry.reason().as_str().replace('_', " "), exact_wait(retry.wait().as_secs_f64()));
    let no_ticket = retry.no_ticket().map(|why| format!("; no ticket: {why}")).unwrap_or_default();
    format!("{}: {reason}; try again in {about}{wait}{no_ticket}", retry.dimension())
}

/// Prints when to come back, and with which ticket. The process may then end, so this function first waits
/// for the healing that is under way: the end of the process would cut it off.
pub(crate) async fn refuse(client: &Client, retry: &RetryIn, asked: &[String], json: bool) -> Ended {
    let ticket = retry.ticket().map(ToString::to_string);
    if json {
        let mut answer = json!({
            "outcome": "retry_in",
            "dimensions": asked,
            "refused_by": retry.dimension().as_str(),
            "wait_secs": retry.wait().as_secs_f64(),
            "reason": retry.reason().as_str(),
        });
        if let Some(ticket) = ticket {
            answer["ticket"] = ticket.into();
        }
        if let Some(why) = retry.no_ticket() {
            answer["no_ticket"] = why.as_str().into();
        }
        output::json(&answer)?;
    } else {
        anstream::println!("{}refused{} {}", YELLOW.render(), YELLOW.render_reset(), refusal(retry));
        if let Some(ticket) = ticket {
            println!("ticket {ticket}");
        }
    }
    client.finish_healing().await;
    Ok(ExitCode::from(TRY_AGAIN))
}

/// Holds the grant. The client renews its leases. If one is gone, a message says so.
async fn hold(grant: Grant, time: Duration) -> Grant {
    let until = Instant::now() + time;
    let mut stop = pin!(stop_requested());
    let mut has_warned = false;
    while Instant::now() < until {
        tokio::select! {
            () = sleep_until(until.min(Instant::now() + LOOK)) => {}
            () = &mut stop => return grant,
        }
        if grant.is_lease_lost() && !std::mem::replace(&mut has_warned, true) {
            let text = "the lease ended and its slot was given back: another call may hold the slot by now";
            anstream::eprintln!("{}{text}{}", YELLOW.render(), YELLOW.render_reset());
        }
    }
    grant
}

#[cfg(test)]
mod tests {
    use sluice_sdk::core::{Amount, Cost, Dimension, Limit};
    use sluice_testkit::EmbeddedDynamo;
    use tokio::time::sleep;

    use super::*;

    const SLOT: &str = "elevenlabs#concurrent";
    const HOLD: Duration = Duration::from_secs(300);
    const DAY_MICROS: i64 = 86_400_000_000;

    /// With a lease of 60 s, while another process asks for the slot each second.
    #[tokio::test(start_paused = true)]
    async fn a_hold_keeps_its_lease_on_a_clock_that_is_a_day_off() {
        for off_by in [-DAY_MICROS, 0, DAY_MICROS] {
            let dynamo = EmbeddedDynamo::with_table("table").await.unwrap();
            let limit = Limit::concurrent(Amount::from_tokens(1), Cost::ONE).unwrap();
            dynamo.client("table").ops().apply_limit(&Dimension::new(SLOT).unwrap(), &limit).await.unwrap();
            let machine = dynamo.metered();
            let client = machine.client_off_by(Client::builder("table"), off_by);
            let grant = client.acquire(SLOT).await.unwrap().granted().unwrap();
            let holder = tokio::spawn(async move { hold(grant, HOLD).await });
            let other = dynamo.client("table");
            for second in 1..HOLD.as_secs() {
                sleep(Duration::from_secs(1)).await;
                let outcome = other.acquire(SLOT).await.unwrap();
                assert!(matches!(outcome, Outcome::RetryIn(_)), "{off_by}: {second} s: {outcome:?}");
            }
            let released = holder.await.unwrap().release().await.unwrap();
            assert_eq!(released, Released::GivenBack, "{off_by}");
            let requests = machine.meter().total().requests;
            assert!(
                requests <= 25,
                "{off_by}: {requests} requests: a renewal takes place once in half of a lease's time"
            );
        }
    }
}
