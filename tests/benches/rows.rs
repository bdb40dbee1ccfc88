//! Tables of leases, for the benchmarks of the sweep.

use std::time::Duration;

use sluice_core::schema::{BUCKETS, KEY};
use sluice_core::{
    Amount, Bucket, Cost, Dimension, Directory, Lease, LeaseId, Limit, Operand, Put, Timestamp,
};

/// Concurrency buckets of which every slot is held: `leases` of them all told, `ended` of these by holders
/// that crashed.
pub(crate) fn table(
    now: Timestamp,
    buckets: usize,
    leases: usize,
    ended: usize,
) -> impl Iterator<Item = Put> {
    let names: Vec<Dimension> =
        (0..buckets).map(|at| Dimension::new(&format!("vendor{at:03}#concurrent")).unwrap()).collect();
    let each = i32::try_from(leases / buckets).unwrap();
    let limit = Limit::concurrent(Amount::from_tokens(each), Cost::ONE).unwrap();
    let rows = names.clone().into_iter().map(move |name| full(&name, limit, now));
    let every = leases / ended;
    let long_ago = now.before(Duration::from_secs(300));
    let lease = move |at: usize| {
        let ends = if at.is_multiple_of(every) { long_ago } else { now.after(Duration::from_secs(3_600)) };
        let id = LeaseId::new(format!("{at:08x}-4c1d-7e7a-9b1e-0123456789ab")).unwrap();
        let name = names[(at / every) % names.len()].clone();
        Lease::new(name, &id, Cost::ONE, long_ago.before(Duration::from_secs(60)), ends, "audit-service")
            .put()
    };
    rows.chain((0..leases).map(lease))
}

/// A bucket whose slots are all taken.
fn full(name: &Dimension, limit: Limit, now: Timestamp) -> Put {
    let mut put = Bucket::full(name.clone(), limit, now).create();
    for (attribute, value) in &mut put.item {
        if *attribute == sluice_core::schema::TOKENS {
            *value = Operand::Number("0".into());
        }
    }
    put
}

/// The directory that an earlier sweep would have left.
pub(crate) fn directory(buckets: usize) -> Put {
    let names =
        (0..buckets).map(|at| Dimension::new(&format!("vendor{at:03}#concurrent")).unwrap()).collect();
    let update = Directory::default().update(&names).unwrap();
    let value = |name: &str| update.values.iter().find(|(short, _)| *short == name).unwrap().1.clone();
    let item = vec![(KEY, Operand::Text(update.key.clone())), (BUCKETS, value(":buckets"))];
    Put {
        item,
        ..full(
            &Dimension::new("a#b").unwrap(),
            Limit::concurrent(Amount::from_tokens(1), Cost::ONE).unwrap(),
            Timestamp::default(),
        )
    }
}
