//! Products whose demand changes.
