//! Lets the module find Node's symbols when it is loaded.

fn main() {
    napi_build::setup();
}
