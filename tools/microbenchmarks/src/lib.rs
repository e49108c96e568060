//! What single calls cost: `./dev bench schedule`, `./dev bench icrc` and `./dev bench reduce`.

#![forbid(unsafe_code)]
