//! libibverbs and librdmacm in front of the engine: conversions, ownership, the panic boundary.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`layout`] | the structures that programs see |
//! | `entry`, `handle`, `acks` | the C edge: errors, objects, events that are out |
//! | `device`, `query` | the device list, contexts, attributes |
//! | `memory`, `window` | protection domains, memory regions and windows |
//! | `ah`, `transitions` | address handles; what each change of state needs |
//! | `completion`, `srq`, `qp`, `post`, `wr` | queues and work requests |
//! | `async_events` | asynchronous events |
//! | `cm` | librdmacm: ids, events, connections |
//! | `strings`, `rates` | numbers in words and other units |
//! | `refused`, `rsocket` | what is not served |
//! | `nodes` | the file in /dev that programs look for |
//! | `real` | the machine's own devices beside ours |
//!
//! How the library is built and loaded is told in `README.md` beside this crate.

#[macro_use]
mod entry;

mod acks;
mod ah;
mod async_events;
mod attributes;
mod cm;
mod completion;
mod device;
mod handle;
pub mod layout;
mod memory;
mod nodes;
mod post;
mod qp;
mod query;
mod rates;
mod real;
mod refused;
mod region;
mod rsocket;
mod srq;
mod strings;
mod transitions;
mod window;
mod wr;
