//! The limiter in each HTTP client, against a vendor that judges for itself.

mod calls;
mod programs;
mod refusals;
mod world;
