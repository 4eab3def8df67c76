//! librdmacm: ids and channels as programs see them, on the engine's connections.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `channel` | event channels, getting and acknowledging events |
//! | `id` | ids: made, ended, moved between channels, completed synchronously |
//! | `devices` | the devices as ids share them |
//! | `connect` | bind, resolve, listen, connect, accept, reject, disconnect |
//! | `queues` | the queue pair, completion queues and shared receive queue of an id |
//! | `endpoint` | `rdma_create_ep` and its kin |
//! | `addrinfo` | `rdma_getaddrinfo` |
//! | `options` | options, and what iWARP has no use for |
//! | `address` | socket addresses in C's form |

mod address;
mod addrinfo;
mod channel;
mod connect;
mod devices;
mod endpoint;
mod id;
mod options;
mod queues;
