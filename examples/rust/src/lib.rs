//! Messages from one queue pair to another, by Sends: a crate whose tests need an RDMA device.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState,
    SetScatterGatherEntry, WorkRequestFlags,
};
use sideway::ibverbs::AccessFlags;

pub type Failed = Box<dyn Error + Send + Sync>;

/// The longest message.
pub const MESSAGE_MAX: usize = 4096;
/// Nothing here takes as long.
const TIMEOUT: Duration = Duration::from_secs(10);
const PORT: u8 = 1;

/// The first RDMA device of this machine.
pub fn first_device() -> Result<Arc<DeviceContext>, Failed> {
    let devices = DeviceList::new()?;
    let device = devices.get(0).ok_or("there is no RDMA device here")?;
    Ok(device.open()?)
}

/// What one end has to know of the other.
#[derive(Clone, Copy)]
pub struct Name {
    pub number: u32,
    pub gid: Gid,
}

/// One end: a queue pair, and memory for one message each way.
pub struct End {
    name: Name,
    gid_index: u8,
    queue_pair: GenericQueuePair,
    sent: GenericCompletionQueue,
    received: GenericCompletionQueue,
    outgoing: (Arc<MemoryRegion>, Box<[u8]>),
    incoming: (Arc<MemoryRegion>, Box<[u8]>),
}

impl End {
    pub fn new(device: &Arc<DeviceContext>) -> Result<End, Failed> {
        let domain = device.alloc_pd()?;
        let queue = || -> Result<GenericCompletionQueue, Failed> {
            let mut builder = device.create_cq_builder();
            Ok(builder.setup_cqe(16).build()?.into())
        };
        let memory = || -> Result<(Arc<MemoryRegion>, Box<[u8]>), Failed> {
            let mut octets = vec![0; MESSAGE_MAX].into_boxed_slice();
            let at = octets.as_mut_ptr() as usize;
            // SAFETY: the end keeps the memory as long as its registration.
            let region = unsafe { domain.reg_mr(at, octets.len(), AccessFlags::LocalWrite)? };
            Ok((region, octets))
        };
        let (sent, received) = (queue()?, queue()?);
        let mut builder = domain.create_qp_builder();
        builder
            .setup_send_cq(sent.clone())
            .setup_recv_cq(received.clone());
        let mut queue_pair: GenericQueuePair = builder.build()?.into();
        let gids = device.query_gid_table()?;
        let gid = gids.first().ok_or("the device has no address")?;
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::Init)
            .setup_pkey_index(0)
            .setup_port(PORT)
            .setup_access_flags(AccessFlags::LocalWrite);
        queue_pair.modify(&attributes)?;
        Ok(End {
            name: Name {
                number: queue_pair.qp_number(),
                gid: gid.gid(),
            },
            gid_index: u8::try_from(gid.gid_index())?,
            queue_pair,
            sent,
            received,
            outgoing: memory()?,
            incoming: memory()?,
        })
    }

    pub fn name(&self) -> Name {
        self.name
    }

    /// Is connected to another end, which does the same with this one's name.
    pub fn connect(&mut self, peer: Name) -> Result<(), Failed> {
        let mut address = AddressHandleAttribute::new();
        address
            .setup_port(PORT)
            .setup_grh_src_gid_index(self.gid_index)
            .setup_grh_dest_gid(&peer.gid)
            .setup_grh_hop_limit(64);
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(Mtu::Mtu1024)
            .setup_dest_qp_num(peer.number)
            .setup_rq_psn(0)
            .setup_max_dest_read_atomic(0)
            .setup_min_rnr_timer(0)
            .setup_address_vector(&address);
        self.queue_pair.modify(&attributes)?;
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(0)
            .setup_timeout(12)
            .setup_retry_cnt(7)
            .setup_rnr_retry(7)
            .setup_max_read_atomic(0);
        Ok(self.queue_pair.modify(&attributes)?)
    }

    /// Has room for the next message.
    pub fn expect(&mut self) -> Result<(), Failed> {
        let (region, octets) = &mut self.incoming;
        let mut list = self.queue_pair.start_post_recv();
        let receive = list.construct_wr(0);
        // SAFETY: the memory is registered, and nobody looks at it until the message is there.
        unsafe {
            receive.setup_sge(
                region.lkey(),
                octets.as_mut_ptr() as u64,
                octets.len() as u32,
            )
        };
        Ok(list.post()?)
    }

    /// Sends a message, and waits until the device is done with it.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Failed> {
        let (region, octets) = &mut self.outgoing;
        let room = octets
            .get_mut(..message.len())
            .ok_or("the message is too long")?;
        room.copy_from_slice(message);
        let mut list = self.queue_pair.start_post_send();
        let send = list
            .construct_wr(0, WorkRequestFlags::Signaled)
            .setup_send();
        // SAFETY: the memory is registered, and stays as it is until the Send is complete.
        unsafe { send.setup_sge(region.lkey(), room.as_ptr() as u64, room.len() as u32) };
        list.post()?;
        complete(&self.sent).map(drop)
    }

    /// Waits for the message that is expected.
    pub fn receive(&mut self) -> Result<&[u8], Failed> {
        let len = complete(&self.received)?;
        Ok(&self.incoming.1[..len])
    }
}

/// Waits for one completion; octets of it.
fn complete(queue: &GenericCompletionQueue) -> Result<usize, Failed> {
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        let Ok(mut polled) = queue.start_poll() else {
            std::thread::yield_now();
            continue;
        };
        if let Some(done) = polled.next() {
            if done.status() != WorkCompletionStatus::Success as u32 {
                return Err(format!("a completion has the status {}", done.status()).into());
            }
            return Ok(done.byte_len() as usize);
        }
    }
    Err("nothing was completed in time".into())
}
