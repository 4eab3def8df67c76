//! The host stack: iWARP in the process over kernel TCP.
