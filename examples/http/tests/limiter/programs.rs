//! The programs, as a developer runs them: each is a process, with its settings in the environment.

use std::process::Command;
use std::time::Duration;

use sluice_http_examples::CALLS;
use sluice_sdk::core::LimitType;

use crate::world::{TABLE, World};

const CLIENTS: [&str; 4] = ["reqwest", "tower", "async_openai", "bedrock"];

/// The program of `examples/rig`, which is built apart: `.ci/rig` names it here.
const RIG_PROGRAM: &str = "SLUICE_RIG_PROGRAM";

/// What the vendor saw of a program of this package: calls answered, and refused.
async fn run(client: &str, kind: &str) -> (usize, usize) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_programs"));
    program.arg(client);
    run_program(program, kind).await
}

/// What the vendor saw of a program that takes `kind` and the vendor's address: calls answered, and refused.
async fn run_program(mut program: Command, kind: &str) -> (usize, usize) {
    let world = World::in_real_time().await;
    // A little less than the vendor allows: the calls of one moment do not arrive in one moment.
    world.refilling("acme#rps", LimitType::Requests, 12, Duration::from_millis(700)).await;
    world.slots("acme#concurrent", 4).await;
    world.bucket("acme#small#tpm", LimitType::Tokens, 1_000_000).await;
    let server = world.dynamo.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    program.args([kind, &world.url]).envs([
        ("SLUICE_TABLE_NAME", TABLE),
        ("SLUICE_ENDPOINT_URL", &server.endpoint_url()),
        ("AWS_ACCESS_KEY_ID", "none"),
        ("AWS_SECRET_ACCESS_KEY", "none"),
    ]);
    let ran = tokio::task::spawn_blocking(move || program.output().unwrap()).await.unwrap();
    assert!(ran.status.success(), "{kind}: {}", String::from_utf8_lossy(&ran.stderr));
    let books = world.vendor.books().clone();
    let succeeded: usize = String::from_utf8(ran.stdout).unwrap().trim().parse().unwrap();
    println!("{kind}: {succeeded} succeeded, {} refused", books.refused);
    assert_eq!(succeeded, books.answered);
    (books.answered, books.refused)
}

/// With the limiter the program of `client` is never refused, and without it all the time.
async fn is_refused_only_without_the_limiter(client: &str) {
    assert_eq!(run(client, "with").await, (CALLS, 0), "{client}");
    let (_, refused) = run(client, "without").await;
    assert!(refused > 20, "{client}: {refused}");
}

// Tests of their own: most of their time is a wait, and they wait side by side.

#[tokio::test]
async fn a_program_on_reqwest_is_refused_only_without_the_limiter() {
    is_refused_only_without_the_limiter("reqwest").await;
}

#[tokio::test]
async fn a_program_on_tower_is_refused_only_without_the_limiter() {
    is_refused_only_without_the_limiter("tower").await;
}

#[tokio::test]
async fn a_program_on_async_openai_is_refused_only_without_the_limiter() {
    is_refused_only_without_the_limiter("async_openai").await;
}

#[tokio::test]
async fn a_program_on_bedrock_is_refused_only_without_the_limiter() {
    is_refused_only_without_the_limiter("bedrock").await;
}

#[tokio::test]
#[ignore = ".ci/rig builds the program"]
async fn the_program_of_rig_with_the_limiter_is_never_refused() {
    let program = std::env::var_os(RIG_PROGRAM).expect(".ci/rig names the program");
    assert_eq!(run_program(Command::new(&program), "with").await, (CALLS, 0));
    let (_, refused) = run_program(Command::new(&program), "without").await;
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_program_with_the_limiter_differs_in_one_line() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = |name: &str| std::fs::read_to_string(format!("{root}/../../docs/{name}.md")).unwrap();
    let (http, bedrock) = (page("http"), page("bedrock"));
    let folders = CLIENTS.map(|client| format!("{root}/src/programs/{client}"));
    for client in folders.into_iter().chain([format!("{root}/../rig/src")]) {
        // rustfmt breaks what is longer than its lines; the page shows one line.
        let text = |kind: &str| {
            let text = std::fs::read_to_string(format!("{client}/{kind}.rs")).unwrap();
            text.replace("\n        .", ".").replace(" =\n        ", " = ")
        };
        // The first line says which of the two it is.
        let (with, without) = (text("with"), text("without"));
        let mut without = without.lines().skip(1).peekable();
        let added = with.lines().skip(1).filter(|line| without.next_if_eq(line).is_none());
        let added: Vec<_> = added.collect();
        assert_eq!(added.len(), 1, "{client}: {added:?}");
        assert_eq!(without.next(), None, "{client}");
        // The pages of Bedrock name its buckets, and the program those of the test's vendor.
        let is_bedrock = client.ends_with("bedrock");
        let vendor = if is_bedrock { "bedrock" } else { "acme" };
        let line = added[0].replace("acme", vendor);
        for (name, page) in
            [("http", &http), ("bedrock", &bedrock)].into_iter().take(1 + usize::from(is_bedrock))
        {
            assert!(
                page.contains(&format!("\n+{line}\n")),
                "docs/{name}.md shows the line of {client}: {line}"
            );
        }
    }
}
