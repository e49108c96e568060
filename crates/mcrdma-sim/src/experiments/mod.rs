//! The figures of the paper.
