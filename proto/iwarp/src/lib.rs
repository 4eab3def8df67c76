//! MPA, DDP and RDMAP for one connection, as data.
