//! The tests stand in `tests/integration`: one binary, which links the AWS SDK and the engine once.
