//! What this process knows of a bucket. Imports no feature.

pub(crate) mod first_read;
pub(crate) mod known;
pub(crate) mod load;
pub(crate) mod near_limit;
pub(crate) mod noted_use;
pub(crate) mod presence;
