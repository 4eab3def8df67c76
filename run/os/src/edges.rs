//! What happens on sockets of the program's, told once each time: whoever is told takes all there is.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::descriptors;
use crate::guarded::Held;
use crate::private::Private;
use crate::sys;

/// An edge-triggered epoll set whose members are numbers of the program's. A member leaves it when the last descriptor
/// of its socket is closed, in whatever process.
#[derive(Debug)]
pub struct Edges {
    fd: Private,
}

/// Members that one wait tells of at most.
const TOLD_MAX: usize = 64;

impl Edges {
    /// An empty set, with a number apart from the program's.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn apart() -> io::Result<Edges> {
        let open = || epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(Edges {
            fd: descriptors::open_apart(open)?,
        })
    }

    /// From now on `token` is told when octets come on the socket behind `number`, and once where there are some.
    ///
    /// # Errors
    /// It is nothing that can be waited for, or memory is short.
    pub fn watch(&self, number: RawFd, token: u64) -> io::Result<()> {
        let event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32,
            u64: token,
        };
        let control = |operation: i32| {
            let args = [
                self.fd.as_fd().as_raw_fd() as usize,
                operation as usize,
                number as usize,
                std::ptr::from_ref(&event) as usize,
                0,
                0,
            ];
            // SAFETY: the kernel reads the event.
            unsafe { sys::call(libc::SYS_epoll_ctl, args) }
        };
        let entered = match control(libc::EPOLL_CTL_ADD) {
            // What has come meanwhile counts as an edge.
            Err(libc::EEXIST) => control(libc::EPOLL_CTL_MOD),
            entered => entered,
        };
        entered.map(drop).map_err(io::Error::from_raw_os_error)
    }
}

/// Waits until something is to be told of members of the set with this number, at most `timeout` (`None`: for ever),
/// and calls `each` with their tokens. The set is named by its number, as others add members meanwhile.
///
/// # Errors
/// `EINTR` when a signal handler ran; the number is no set's.
pub fn wait(number: RawFd, timeout: Option<Duration>, mut each: impl FnMut(u64)) -> io::Result<()> {
    let mut told = [libc::epoll_event { events: 0, u64: 0 }; TOLD_MAX];
    let ms = timeout.map_or(-1, |timeout| timeout.as_millis() as isize);
    let args = [
        number as usize,
        told.as_mut_ptr() as usize,
        TOLD_MAX,
        ms as usize,
        0,
        0,
    ];
    // SAFETY: the kernel writes so many events at most; no mask is given.
    let count = unsafe { sys::call(libc::SYS_epoll_pwait, args) };
    let count = count.map_err(io::Error::from_raw_os_error)?;
    told[..count].iter().for_each(|event| each(event.u64));
    Ok(())
}

impl AsFd for Edges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Held for Edges {
    fn abandon(self) {
        self.fd.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    fn told(edges: &Edges) -> Vec<u64> {
        let mut told = Vec::new();
        let within = Some(Duration::from_millis(50));
        wait(edges.fd.as_fd().as_raw_fd(), within, |token| {
            told.push(token)
        })
        .unwrap();
        told
    }

    #[test]
    fn what_comes_is_told_once_each_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        let edges = Edges::apart().unwrap();
        assert!(edges.as_fd().as_raw_fd() >= descriptors::APART);
        edges.watch(other.as_raw_fd(), 7).unwrap();
        assert!(told(&edges).is_empty());
        for _ in 0..2 {
            one.write_all(b"x").unwrap();
            assert_eq!(told(&edges), [7]);
            assert!(told(&edges).is_empty(), "nobody has taken it");
        }
        // What is there when it is entered, or entered again, is told.
        edges.watch(other.as_raw_fd(), 8).unwrap();
        assert_eq!(told(&edges), [8]);
        assert!(edges.watch(1_000_000, 9).is_err());
        drop(other);
        drop(one);
        assert!(told(&edges).is_empty());
    }
}
