//! Runs the program: `sluice-rig-example with http://127.0.0.1:1234` prints how many of its calls succeeded.

mod with;
mod without;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The calls that each program makes, at once.
const CALLS: usize = 60;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url] = arguments.as_slice() else {
        return Err("usage: sluice-rig-example with|without URL".into());
    };
    let succeeded = if kind == "with" { with::run(url).await? } else { without::run(url).await? };
    println!("{succeeded}");
    Ok(())
}

/// Makes the calls. Returns how many of them succeeded.
async fn many<F: Future<Output = Result<(), BoxError>>>(call: impl Fn() -> F) -> usize {
    let calls = futures_util::future::join_all((0..CALLS).map(|_| call())).await;
    calls.into_iter().filter(Result::is_ok).count()
}
