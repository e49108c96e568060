//! What single calls cost: `./dev bench schedule`, `icrc`, `reduce` and `shm`.

#![forbid(unsafe_code)]
