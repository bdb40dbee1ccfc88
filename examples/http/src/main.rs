//! Runs one of the programs: `programs reqwest with http://127.0.0.1:1234` prints how many of its calls
//! succeeded.

use sluice_http_examples::{BoxError, programs};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "its answer")]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, kind, url] = arguments.as_slice() else {
        return Err("usage: programs CLIENT with|without URL".into());
    };
    let succeeded = match (client.as_str(), kind.as_str()) {
        ("async_openai", "with") => programs::async_openai::with::run(url).await?,
        ("async_openai", _) => programs::async_openai::without::run(url).await?,
        ("bedrock", "with") => programs::bedrock::with::run(url).await?,
        ("bedrock", _) => programs::bedrock::without::run(url).await?,
        ("reqwest", "with") => programs::reqwest::with::run(url).await?,
        ("reqwest", _) => programs::reqwest::without::run(url).await?,
        ("tower", "with") => programs::tower::with::run(url).await?,
        ("tower", _) => programs::tower::without::run(url).await?,
        _ => return Err(format!("no program for {client}").into()),
    };
    println!("{succeeded}");
    Ok(())
}
