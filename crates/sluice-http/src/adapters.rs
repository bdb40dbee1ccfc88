//! A limiter in the place where each HTTP client lets a layer in.

#[cfg(feature = "async-openai")]
mod async_openai;
#[cfg(any(feature = "async-openai", feature = "reqwest-middleware"))]
mod reqwest;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_middleware;
#[cfg(feature = "smithy")]
mod smithy;
#[cfg(feature = "tower")]
mod tower;

#[cfg(feature = "tower")]
pub use tower::Limited;

#[cfg(feature = "tower")]
type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
