//! Weft turned off (`WEFT_OFF=1`): the libraries are loaded, and every call goes on to the machine's own.
//!
//! Where the installed library stands behind ours (preload mode), each function hands its call on before it does
//! anything (see `export!`), so the program sees the machine's devices and errors. Where there is none
//! (replacement mode), nothing is behind us: the list of devices is empty, and what would open one fails with ENODEV.

use std::sync::OnceLock;

use weft_engine::fork::once;
use weft_engine::settings::Settings;
use weft_engine::{info, log};

use crate::system_devices;

/// Whether Weft is off in this process; the environment is asked once.
#[inline]
pub fn is_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *once(&OFF, ask)
}

#[cold]
fn ask() -> bool {
    let (settings, _) = Settings::from_env();
    if settings.off {
        system_devices::pass_all_on();
        log::set_threshold(settings.log);
        info!("Weft is off (WEFT_OFF): calls of verbs go to the machine's own libraries");
    }
    settings.off
}
