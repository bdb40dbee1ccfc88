//! The Lambda function: reads the environment, opens one connection, and runs a sweep for each event.

use lambda_runtime::{LambdaEvent, run, service_fn};
use sluice_reconciler::{Reconciler, Trigger, log_to_stdout, time_left};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    log_to_stdout();
    let reconciler = Reconciler::connect().await;
    let handle = async |event: LambdaEvent<Trigger>| reconciler.reconcile(time_left(&event.context)).await;
    run(service_fn(handle)).await
}
