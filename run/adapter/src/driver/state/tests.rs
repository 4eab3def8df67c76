//! Which frames of a link are the stack's, and how many at a time.

use std::os::fd::BorrowedFd;

use weft_inet::stack::StackConfig;
use weft_inet::tcp::Secret;
use weft_os::device::Batch;
use weft_os::packet::VlanTag;

use super::*;
use crate::cable;
use weft_engine::carrier::SocketOptions;

/// A link whose frames have a VLAN tag, or lack octets at their end.
#[derive(Debug)]
struct Marked {
    link: cable::End,
    missing: usize,
    vlan: Option<VlanTag>,
}

impl Link for Marked {
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        let (missing, vlan) = (self.missing, self.vlan);
        self.link.receive(most, &mut |frame| {
            each(&ReceivedFrame {
                missing,
                vlan,
                ..*frame
            });
        })
    }

    fn send(&mut self, batch: &mut Batch<'_>) -> io::Result<usize> {
        self.link.send(batch)
    }

    fn may_have_frame(&self) -> bool {
        self.link.may_have_frame()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        self.link.wait(timeout)
    }

    fn take_drops(&mut self) -> u64 {
        self.link.take_drops()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn waiting_frames_max(&self) -> usize {
        self.link.waiting_frames_max()
    }
}

fn host(last: u8, link: Box<dyn Link>) -> State {
    let addresses = vec![format!("10.7.0.{last}/24").parse().unwrap()];
    let config = StackConfig::new([2, 0, 0, 0, 0, last], addresses, Secret([last; 16]));
    State::new(link, Stack::new(config), 1)
}

/// Frames that the second of two hosts takes, and answers, of what the first sends to connect.
fn taken_and_answered(missing: usize, vlan: Option<VlanTag>) -> (u64, u64) {
    let (one, link) = cable::pair().unwrap();
    let mut one = host(1, Box::new(one));
    let mut two = host(
        2,
        Box::new(Marked {
            link,
            missing,
            vlan,
        }),
    );
    let [local, peer] = ["10.7.0.1:0", "10.7.0.2:7471"].map(|text| text.parse().unwrap());
    one.connect(local, peer, &SocketOptions::default()).unwrap();
    for _ in 0..5 {
        one.run();
        two.run();
    }
    (two.counters.frames_in, two.counters.frames_out)
}

#[test]
fn frames_that_are_cut_or_of_a_vlan_are_not_taken() {
    let (taken, answered) = taken_and_answered(0, None);
    assert!(taken > 0 && answered > 0);
    let tag = VlanTag {
        protocol: 0x8100,
        control: 5,
    };
    for (missing, vlan) in [(1, None), (0, Some(tag))] {
        assert_eq!(taken_and_answered(missing, vlan), (0, 0));
    }
}

/// Whoever waits for the lock has it soon, however much comes.
#[test]
fn a_turn_takes_so_many_frames_at_most() {
    let (mut other, link) = cable::pair().unwrap();
    let mut state = host(1, Box::new(link));
    let octets = [0; 60];
    for _ in 0..FRAMES_OF_A_TURN_MAX + 10 {
        let mut batch = Batch::default();
        assert!(batch.frame(&[0; weft_os::packet::OFFLOAD_LEN]) && batch.push(&octets));
        other.send(&mut batch).unwrap();
    }
    for taken in [FRAMES_OF_A_TURN_MAX, FRAMES_OF_A_TURN_MAX + 10] {
        state.run();
        assert_eq!(state.counters.frames_in, taken as u64);
    }
}
