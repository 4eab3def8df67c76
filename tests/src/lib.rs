//! Whole-system tests.

#![forbid(unsafe_code)]
