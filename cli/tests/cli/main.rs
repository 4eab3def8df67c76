//! The weft command from outside: exit statuses, what it prints, what a program sees.

mod config;
mod docs;
mod doctor;
mod place;
mod readers;
mod run;
mod stat;
