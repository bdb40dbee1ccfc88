//! What the model must show: the protocol holds in every state, and each mutant of it is caught. With
//! `--nocapture`, the size of each state space, and the shortest way to what each mutant breaks.

#![allow(clippy::print_stdout, reason = "what the check found is for people to read")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod code;

mod holds;
mod lane;
mod larger;
mod mutants;
mod prefetch;
mod shares;
mod slot_rows;
