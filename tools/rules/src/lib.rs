//! Makes the examples in the repository's documents tests, so that they compile.

#![forbid(unsafe_code)]

/// README.md.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
