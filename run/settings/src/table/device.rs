//! The settings of the section `[device]`.

use crate::{Face, Kind, Setting};

pub(super) const FACE: Setting = Setting {
    name: "face",
    env: "WEFT_FACE",
    key: "device.face",
    kind: Kind::Choice(&["infiniband", "iwarp"], |settings, index| {
        settings.face = Face::ALL[index];
    }),
    default: "infiniband",
    doc: "What the device says it is. `infiniband`: transport InfiniBand on an Ethernet \
          link, with a GID for each address of the machine, which nearly every program \
          takes: queue pairs come up by GID and number as well as through the connection \
          manager. `iwarp`: transport iWARP, as the wire underneath is, with the one GID \
          that such devices have; queue pairs come up through the connection manager only.",
};

pub(super) const DEVICES: Setting = Setting {
    name: "devices",
    env: "WEFT_DEVICES",
    key: "device.devices",
    kind: Kind::Devices(|settings, devices| settings.devices = devices),
    default: "one",
    doc: "How many devices a program sees. `one`: `weft0`, which stands for every address of the machine. `all`: \
          `weft0`, `weft1` and so on, a device for each interface that is up, is not loopback and has an address that is \
          not link-local, in the kernel's order. Names of interfaces, as in `eth1,eth2`: a device for each of these, in \
          this order; one that is not there is an error and leaves the program without a device. With several a program \
          that spreads what it sends over devices (MPI, UCX, NCCL) uses several links: a connection by GID takes an \
          address of its device's interface, and an id of the connection manager belongs to the device that has its \
          local address.",
};
