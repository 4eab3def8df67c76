//! Small safe types over the operating system.
