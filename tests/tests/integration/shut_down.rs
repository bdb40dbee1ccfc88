//! A runtime that is shut down under a caller which `Handle::block_on` goes on to poll: its call returns.

use std::sync::mpsc;
use std::time::Duration;

use sluice_sdk::{AcquireError, ReleaseError, StoreError};
use sluice_testkit::{Gate, Operation};
use tokio::runtime::Runtime;

use crate::kind::Kind;
use crate::world::{World, take};

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const SLOTS: &str = "openai#concurrent";
/// Longer than any call here takes. The test hangs without it, and says nothing.
const HANGS: Duration = Duration::from_secs(20);
const CALLER_SLEEPS: Duration = Duration::from_millis(200);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// What `call` returns, polled by `Handle::block_on`, when its runtime is shut down while `gate` holds one of
/// its requests.
fn shut_down_under<T: Send + 'static>(gate: &Gate, call: impl Future<Output = T> + Send + 'static) -> T {
    let (runtime, (answer, answered)) = (runtime(), mpsc::channel());
    let handle = runtime.handle().clone();
    std::thread::spawn(move || answer.send(handle.block_on(call)));
    runtime.block_on(gate.reached());
    // The request may be on its way before its caller sleeps, and a timer of tokio that is polled while its
    // runtime is shut down panics.
    std::thread::sleep(CALLER_SLEEPS);
    runtime.shutdown_background();
    answered.recv_timeout(HANGS).expect("the call returns")
}

fn is_stopped(error: &StoreError) -> bool {
    error.to_string().contains("the runtime that sent the request was shut down")
}

#[test]
fn an_acquire_of_several_dimensions_returns_when_its_runtime_is_shut_down() {
    let staying = runtime();
    let world = staying.block_on(async {
        let world = World::with_rate(RPM, 10, 60).await;
        world.rate(TPM, 10, 60).await;
        world
    });
    let client = world.client();
    let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::GetItem));
    let answer = shut_down_under(&gates[0], async move { client.acquire([RPM, TPM]).await.map(drop) });
    let Err(AcquireError::Store(error)) = answer else { panic!("{answer:?}") };
    assert!(is_stopped(&error), "{error}");
}

#[test]
fn a_release_returns_when_its_runtime_is_shut_down() {
    for kind in [Kind::Rows, Kind::Inline] {
        let staying = runtime();
        let (world, held) = staying.block_on(async {
            let world = kind.with_slots(SLOTS, 1).await;
            let held = take(&world.client(), SLOTS).await;
            (world, held)
        });
        let gate = world.dynamo.faults().hold_next(kind.write());
        let answer = shut_down_under(&gate, held.release());
        let Err(ReleaseError::Store(error)) = answer else { panic!("{kind:?}: {answer:?}") };
        assert!(is_stopped(&error), "{kind:?}: {error}");
    }
}
