//! libibverbs and librdmacm in front of the engine: conversions, ownership, the panic boundary.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`layout`] | the structures that programs see |
//! | `entry`, `handle`, `event_references` | the C edge: errors, objects, events that are out |
//! | `one_engine` | a second copy of this library in the process |
//! | `device`, `listed`, `context`, `query`, `gids` | the device list, contexts, attributes |
//! | `memory`, `window` | protection domains, memory regions and windows |
//! | `ah` | address handles |
//! | `completion`, `srq`, `qp`, `queue_pair`, `attributes` | queues |
//! | `post`, `wr`, `request_builder` | work requests |
//! | `async_events` | asynchronous events |
//! | `cm` | librdmacm: ids, events, connections |
//! | `strings`, `rates` | numbers in words and other units |
//! | `rsocket` | rsocket(7), served by the library with the socket hooks |
//! | `unsupported` | what is not served |
//! | `version` | which library this is |
//! | `device_files`, `listing`, `sysfs` | the files in /dev and /sys that programs look for |
//! | `system_devices`, `off` | the machine's own devices beside ours, and instead of ours |
//!
//! # What the program promises
//!
//! By the man page of each call a pointer is null, or an object that this library gave out and that was not destroyed,
//! or memory of the size that the call says; and a list is not changed while it is read. The functions behind the C
//! names say under `# Safety` which of it they need, and each unsafe block what it takes from there. What can be
//! checked is: `handle::Handle::of` refuses null and what was destroyed lately (a debug build also what is of another
//! kind); `post::elements` compares a list's length with the longest that a queue takes before it reads one element.
//! That an address has as many octets as the length beside it says only the program can keep, as with any device; the
//! engine reads and writes *registered* memory through guarded copies (decision 0003).
//!
//! How the library is built and loaded is told in `README.md` beside this crate.

#[macro_use]
mod entry;

mod ah;
mod async_events;
mod attributes;
mod cm;
mod completion;
mod context;
mod device;
mod device_files;
mod event_references;
mod exclusive_region;
mod gids;
mod handle;
pub mod layout;
mod listed;
mod listing;
mod memory;
mod off;
mod one_engine;
mod post;
mod qp;
mod query;
mod queue_pair;
mod rates;
mod request_builder;
mod rsocket;
mod srq;
mod strings;
mod sysfs;
mod system_devices;
mod unsupported;
mod version;
mod window;
mod wr;
