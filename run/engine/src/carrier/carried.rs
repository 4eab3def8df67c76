//! A connection as a queue pair keeps it.

use std::any::Any;
use std::ops::Deref;

use weft_os::net::TcpStream;

use super::Carrier;

/// A carrier that a queue pair has.
///
/// That of the kernel, which nearly all have, lies in the queue pair: behind a pointer it would be one more place in
/// memory that each pass over the queue pair waits for (decision 0024).
#[derive(Debug)]
pub(crate) enum Carried {
    Kernel(TcpStream),
    Other(Box<dyn Carrier>),
}

impl From<Box<dyn Carrier>> for Carried {
    fn from(carrier: Box<dyn Carrier>) -> Carried {
        if !(&*carrier as &dyn Any).is::<TcpStream>() {
            return Carried::Other(carrier);
        }
        match (carrier as Box<dyn Any>).downcast::<TcpStream>() {
            Ok(mut stream) => {
                stream.forget_addresses();
                Carried::Kernel(*stream)
            }
            Err(_) => unreachable!("its type was looked at"),
        }
    }
}

impl Deref for Carried {
    type Target = dyn Carrier;

    #[inline]
    fn deref(&self) -> &(dyn Carrier + 'static) {
        match self {
            Carried::Kernel(stream) => stream,
            Carried::Other(carrier) => &**carrier,
        }
    }
}
