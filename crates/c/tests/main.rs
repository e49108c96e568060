//! The C interface as programs see it: the header, and programs in C and C++.

mod examples;
mod header;
mod installed;
mod programs;
