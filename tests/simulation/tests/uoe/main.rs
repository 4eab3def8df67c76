//! Datagrams over carriers, on virtual time: two processes with sockets, a plain way that loses, and carriers of both
//! kinds, one that keeps the order and the engine's own TCP, which gives segments on as they come.

mod host;
mod pipe;
mod seeds;
mod side;
mod world;
