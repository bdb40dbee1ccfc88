use super::*;

type Numbers = Lane<u32, u32>;

/// Answers each batch with its size, once the gate opens.
fn service(gate: &Arc<Notify>) -> impl FnOnce(Leader<u32, u32>) -> Service {
    let gate = Arc::clone(gate);
    move |mut leader| {
        Box::pin(async move {
            while let Some(batch) = leader.next(10).await {
                gate.notified().await;
                let size = u32::try_from(batch.len()).unwrap();
                batch.into_iter().for_each(|waiter| waiter.answer(size));
                leader.batch_is_over();
            }
        })
    }
}

fn nobody(_: Leader<u32, u32>) -> Service {
    unreachable!("the lane is served")
}

#[tokio::test]
async fn who_arrives_while_the_lane_is_served_is_in_the_next_batch() {
    let (lane, gate) = (Arc::new(Numbers::default()), Arc::new(Notify::new()));
    let mut first = tokio::spawn(lane.join(1, service(&gate)).answer());
    // Until the batch of the first caller is taken.
    while !lane.queue().waiting.is_empty() {
        tokio::task::yield_now().await;
    }
    let later: Vec<_> = (2..5).map(|ask| lane.join(ask, nobody)).collect();
    gate.notify_one();
    assert_eq!((&mut first).await.unwrap().unwrap(), 1);
    gate.notify_one();
    for handle in later {
        assert_eq!(handle.answer().await.unwrap(), 3);
    }
    tokio::task::yield_now().await;
    while !lane.is_idle() {
        tokio::task::yield_now().await;
    }
}

/// A caller that is polled once, and then not for long, holds nobody up.
#[tokio::test]
async fn a_caller_that_is_not_polled_keeps_nobody_waiting() {
    let (lane, gate) = (Arc::new(Numbers::default()), Arc::new(Notify::new()));
    let mut idle = Box::pin(lane.join(1, service(&gate)).answer());
    while !lane.queue().waiting.is_empty() {
        let is_pending =
            std::future::poll_fn(|context| Poll::Ready(idle.as_mut().poll(context).is_pending()));
        assert!(is_pending.await);
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    let other = lane.join(2, nobody);
    tokio::task::yield_now().await;
    gate.notify_one();
    assert_eq!(other.answer().await.unwrap(), 1);
    assert_eq!(idle.await.unwrap(), 1);
}

#[tokio::test]
async fn who_left_is_passed_over_and_what_it_leaves_is_for_the_head() {
    let (lane, gate) = (Arc::new(Numbers::default()), Arc::new(Notify::new()));
    let left = lane.join(1, service(&gate));
    let also_left = lane.join(2, nobody);
    let stays = lane.join(3, nobody);
    drop((left, also_left));
    assert!(lane.head_if(|ask| *ask == 4).is_none());
    lane.head_if(|ask| *ask == 3).unwrap().answer(30);
    assert_eq!(stays.answer().await.unwrap(), 30);
    while !lane.is_idle() {
        tokio::task::yield_now().await;
    }
}

/// As when the runtime that runs the service is dropped.
#[tokio::test]
async fn who_serves_and_ends_tells_those_in_line_to_ask_again() {
    let lane = Arc::new(Numbers::default());
    let one_batch = |mut leader: Leader<u32, u32>| -> Service {
        Box::pin(async move {
            let batch = leader.next(1).await;
            drop((batch, leader));
        })
    };
    let sent = lane.join(1, one_batch);
    let not_sent = lane.join(2, nobody);
    let (sent, not_sent) = (sent.answer().await, not_sent.answer().await);
    assert!(matches!((sent, not_sent), (Err(NoAnswer::Lost), Err(NoAnswer::NotServed))));
    assert!(lane.is_idle());
}
