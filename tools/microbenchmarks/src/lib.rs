//! What single calls cost: `./dev bench schedule` and `./dev bench icrc`.

#![forbid(unsafe_code)]
