use super::*;

const MAX_AGE: Duration = Duration::from_secs(300);

fn index(capacity: usize) -> Index<u64> {
    Index::new(capacity, MAX_AGE)
}

fn new<'a>(request: &'a str, bucket: &'a str, at_secs: u32) -> New<'a> {
    New { request, bucket, estimated_tokens: None, now: Timestamp::from_secs(at_secs) }
}

fn payloads(held: Vec<HeldReservation<u64>>) -> Vec<u64> {
    held.into_iter().map(|held| held.payload).collect()
}

#[test]
fn what_is_stored_is_found_and_stays_until_it_is_taken_once() {
    let mut index = index(10);
    let id = index.store(&new("r", "a#tpm", 5), 7).unwrap();
    let found = index.get("r", "a#tpm").unwrap().clone();
    assert_eq!((found.id(), found.request(), found.bucket()), (id, "r", "a#tpm"));
    assert_eq!((found.created_at(), found.estimated_tokens()), (Timestamp::from_secs(5), None));
    assert_eq!(index.get("r", "a#rpm"), None);
    let taken = index.take("r", "a#tpm").unwrap();
    assert_eq!((taken.reservation, taken.payload), (found, 7));
    assert_eq!((index.take("r", "a#tpm"), index.len(), index.requests()), (None, 0, 0));
}

#[test]
fn a_key_that_is_taken_hands_the_newcomer_back() {
    let mut index = index(10);
    index.store(&new("r", "a#tpm", 0), 1).unwrap();
    assert_eq!(index.store(&new("r", "a#tpm", 0), 2), Err((NotStored::Taken, 2)));
    assert_eq!(index.take("r", "a#tpm").unwrap().payload, 1);
}

#[test]
fn all_of_a_request_and_nothing_of_another_is_taken() {
    let mut index = index(10);
    for (at, bucket) in (0..).zip(["c", "a", "b"]) {
        index.store(&new("r", bucket, 0), at).unwrap();
        index.store(&new("other", bucket, 0), at + 10).unwrap();
    }
    assert_eq!((index.len(), index.requests()), (6, 2));
    assert_eq!(payloads(index.take_request("r")), [0, 1, 2]);
    assert_eq!((index.len(), index.requests()), (3, 1));
    assert!(index.take_request("r").is_empty());
    assert_eq!(index.take("other", "a").unwrap().payload, 11);
    assert_eq!(index.take_oldest("other").unwrap().payload, 10);
    assert_eq!(index.take_oldest("other").unwrap().payload, 12);
    assert_eq!((index.take_oldest("other"), index.requests()), (None, 0));
}

#[test]
fn what_is_older_than_the_largest_age_is_taken_oldest_first_and_what_is_as_old_stays() {
    let mut index = index(10);
    // The clock went back: younger ids may be older.
    for (request, at) in [("r1", 2), ("r2", 0), ("r3", 1), ("r4", 3)] {
        index.store(&new(request, "a", at), u64::from(at)).unwrap();
    }
    assert!(index.take_stale(Timestamp::from_secs(300)).is_empty());
    assert_eq!(payloads(index.take_stale(Timestamp::from_secs(303))), [0, 1, 2]);
    assert_eq!((index.len(), index.requests(), index.stale_entries()), (1, 1, 0));
}

#[test]
fn what_was_stored_before_a_moment_is_taken_oldest_first_and_what_was_stored_then_stays() {
    let mut index = index(10);
    for (request, at) in [("r1", 1), ("r2", 2), ("r3", 3)] {
        index.store(&new(request, "a", at), u64::from(at)).unwrap();
    }
    assert_eq!(payloads(index.take_stored_before(Timestamp::from_secs(3))), [1, 2]);
    assert_eq!((index.len(), index.requests()), (1, 1));
}

#[test]
fn what_was_taken_does_not_hide_what_is_stale_behind_it() {
    let mut index = index(10);
    index.store(&new("r1", "a", 0), 1).unwrap();
    index.store(&new("r2", "a", 1), 2).unwrap();
    index.take("r1", "a").unwrap();
    assert_eq!(payloads(index.take_stale(Timestamp::from_secs(1_000))), [2]);
}

#[test]
fn a_key_that_is_used_again_is_as_old_as_its_last_use() {
    let mut index = index(10);
    index.store(&new("r", "a", 0), 1).unwrap();
    index.take("r", "a").unwrap();
    index.store(&new("r", "a", 200), 2).unwrap();
    assert!(index.take_stale(Timestamp::from_secs(400)).is_empty());
    assert_eq!(payloads(index.take_stale(Timestamp::from_secs(501))), [2]);
}

#[test]
fn at_capacity_the_stale_make_room_and_the_young_do_not() {
    let mut index = index(2);
    index.store(&new("r1", "a", 0), 1).unwrap();
    index.store(&new("r2", "a", 100), 2).unwrap();
    let early = new("r3", "a", 300);
    assert!(index.make_room(&early).is_empty());
    assert_eq!(index.store(&early, 3), Err((NotStored::AtCapacity, 3)));
    let later = new("r3", "a", 301);
    assert_eq!(payloads(index.make_room(&later)), [1]);
    index.store(&later, 3).unwrap();
    assert_eq!(index.len(), 2);
}

#[test]
fn what_is_stale_under_a_key_does_not_keep_it_taken() {
    let mut index = index(10);
    index.store(&new("r", "a", 0), 1).unwrap();
    assert!(index.make_room(&new("r", "a", 300)).is_empty());
    let again = new("r", "a", 301);
    assert_eq!(payloads(index.make_room(&again)), [1]);
    index.store(&again, 2).unwrap();
}

#[test]
fn compacting_takes_stale_entries_alone() {
    let mut index = index(100);
    let names: Vec<String> = (0..40).map(|n| format!("r{n}")).collect();
    for (at, name) in (0..).zip(&names) {
        index.store(&new(name, "a", at), u64::from(at)).unwrap();
    }
    names[..30].iter().for_each(|name| drop(index.take(name, "a").unwrap()));
    assert_eq!((index.stale_entries(), index.entries()), (30, 40));
    assert_eq!(index.compact(), 30);
    assert_eq!((index.stale_entries(), index.entries(), index.compact()), (0, 10, 0));
    assert_eq!(payloads(index.take_stale(Timestamp::from_secs(1_000))), (30..40).collect::<Vec<_>>());
}

/// One long stream keeps the heap's top alive, so that only compaction removes the stale entries.
#[test]
fn millions_of_stores_and_takes_keep_the_size() {
    let rounds = u64::from(sluice_test_extent::cases(100_000, 10));
    let mut index = index(1_000);
    index.store(&new("a long stream", "a", 0), 0).unwrap();
    let names: Vec<String> = (0..50).map(|n| format!("request {n}")).collect();
    let mut most = (0, 0, 0, 0);
    for round in 0..rounds {
        for name in &names {
            index.store(&new(name, "a", 1), round).unwrap();
            index.store(&new(name, "b", 1), round).unwrap();
        }
        let sizes =
            (index.entries(), index.ages.capacity(), index.held.capacity(), index.requests.capacity());
        most = (most.0.max(sizes.0), most.1.max(sizes.1), most.2.max(sizes.2), most.3.max(sizes.3));
        for name in &names {
            match round % 2 {
                0 => assert_eq!(payloads(index.take_request(name)), [round; 2]),
                _ => assert!(
                    ["a", "b"].iter().all(|bucket| index.take(name, bucket).unwrap().payload == round)
                ),
            }
        }
    }
    assert_eq!((index.len(), index.requests(), index.next), (1, 1, rounds * 100 + 1));
    assert!(most.0 <= 303 && most.1 <= 512 && most.2 <= 512 && most.3 <= 512, "{most:?}");
}

#[test]
fn what_a_burst_needed_is_given_back_after_it() {
    let mut index = index(100_000);
    let names: Vec<String> = (0..100_000).map(|n| format!("request {n}")).collect();
    for name in &names {
        index.store(&new(name, "a", 0), 0).unwrap();
    }
    names.iter().for_each(|name| drop(index.take(name, "a").unwrap()));
    let sizes = [index.ages.capacity(), index.held.capacity(), index.requests.capacity()];
    assert!(sizes.iter().all(|size| *size <= 1_024), "{sizes:?}");
}
