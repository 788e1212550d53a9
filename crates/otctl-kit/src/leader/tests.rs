//! The step table, and candidates against an API server in memory.

mod faults;
mod table;
