//! Trees from the outside: encoding, layout, and patterns beside rsync's.

mod layout;
mod listing;
mod selection;
mod trees;
