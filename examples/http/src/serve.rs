//! Serves the vendor for programs in other languages, and prints its address. `GET /books` returns what it
//! saw.

use sluice_http_examples::BoxError;
use sluice_http_examples::vendor::Vendor;

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the address")]
async fn main() -> Result<(), BoxError> {
    println!("{}", Vendor::default().serve().await?);
    std::future::pending().await
}
