//! Whole groups of real engines on the simulated network, in virtual time.
