//! The process's one engine: what all objects share. It knows none of them.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use weft_os::fork::PerProcess;
use weft_os::mem::Registered;
use weft_verbs::iwarp::mpa::crc;
use weft_verbs::mr::Regions;

use crate::carrier::tcp::KernelTcp;
use crate::carrier::Network;
use crate::clock::Clock;
use crate::error::Error;
use crate::numbers::Numbers;
use crate::progress::Progress;
use crate::refusals::Refusals;
use crate::registries::Registries;
use crate::settings::Settings;
use crate::stats::Stats;

const ENODEV: i32 = 19;

/// Everything the process's verbs objects share.
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) regions: RwLock<Regions<Registered>>,
    pub(crate) progress: Progress,
    pub(crate) stats: Arc<Stats>,
    /// What connections are made of.
    pub(crate) network: Arc<dyn Network>,
    pub(crate) numbers: Numbers,
    pub(crate) refusals: Refusals,
    registries: Registries,
    next_pd: AtomicU32,
    clock: Clock,
}

/// Every object leads to the engine, and the engine to every object.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// A forked child starts one of its own; its parent's goes on serving the parent alone (decision 0017).
static ENGINE: PerProcess<Result<Arc<Engine>, Error>> = PerProcess::new();

/// Makes the network that an engine is to run over, of the settings it is to have.
pub type NetworkMaker = fn(&Settings) -> Result<Arc<dyn Network>, String>;

/// Of the engines that start by themselves. One value for the process and its children: a library sets it when it is
/// loaded.
static NETWORK: OnceLock<NetworkMaker> = OnceLock::new();

/// Engines that start on first use run over what `make` gives, and not over the kernel's TCP. Where it gives an error,
/// in words for a person, the engine does not start. False when that was said before.
pub fn choose_network(make: NetworkMaker) -> bool {
    NETWORK.set(make).is_ok()
}

/// The process's engine, started on first use.
///
/// # Errors
/// No descriptors or no thread to be had.
pub fn engine() -> Result<Arc<Engine>, Error> {
    ENGINE.get_or_init(Engine::from_env).clone()
}

/// The process's engine, if it runs.
pub(crate) fn started() -> Option<Arc<Engine>> {
    ENGINE.get()?.as_ref().ok().cloned()
}

/// Starts the process's engine with settings of the program's own, whatever the environment says.
///
/// # Errors
/// It runs already; or no descriptors or no thread are to be had.
pub fn start_with(settings: Settings) -> Result<Arc<Engine>, Error> {
    start_on(settings, Arc::new(KernelTcp))
}

/// The same over a network of the program's own, such as an adapter's.
///
/// # Errors
/// As for [`start_with`].
pub fn start_on(settings: Settings, network: Arc<dyn Network>) -> Result<Arc<Engine>, Error> {
    let mut settings = Some(settings);
    let started = ENGINE.get_or_init(|| {
        let settings = settings.take().unwrap_or_default();
        crate::log::set_threshold(settings.log);
        Engine::start(settings, network)
    });
    match settings {
        None => started.clone(),
        Some(_) => Err(Error::State("a process whose engine does not run yet")),
    }
}

impl Engine {
    fn from_env() -> Result<Arc<Engine>, Error> {
        let (settings, complaints) = Settings::from_env();
        crate::log::set_threshold(settings.log);
        for complaint in complaints {
            crate::warn!("{complaint}");
        }
        let network = match NETWORK.get() {
            None => Arc::new(KernelTcp) as Arc<dyn Network>,
            Some(make) => make(&settings)
                .inspect_err(|why| crate::error!("the device cannot be opened: {why}"))
                .map_err(|_| Error::Os(ENODEV))?,
        };
        Engine::start(settings, network)
    }

    /// Says in words what a program can only see as an error number, and prints at most as "failed to open device".
    fn start(settings: Settings, network: Arc<dyn Network>) -> Result<Arc<Engine>, Error> {
        Engine::begin(settings, network)
            .inspect_err(|error| crate::error!("the device cannot be opened: {error}"))
    }

    fn begin(settings: Settings, network: Arc<dyn Network>) -> Result<Arc<Engine>, Error> {
        // Before there are threads of ours.
        crc::prepare();
        let (clock, stats) = (Clock::start(), Arc::new(Stats::new(settings.stat)));
        let engine = Arc::new(Engine {
            regions: RwLock::new(Regions::default()),
            progress: Progress::new(
                settings.serve_tick,
                settings.busy_poll,
                clock,
                stats.clone(),
            )?,
            numbers: Numbers::new(network.clone(), settings.socket_buffer.unwrap_or(0)),
            network,
            refusals: Refusals::new(settings.refused_access_limit, stats.clone(), clock),
            registries: Registries::default(),
            next_pd: AtomicU32::new(1),
            stats,
            clock,
            settings,
        });
        for (place, part) in engine.network.drives().into_iter().enumerate() {
            if let Some(row) = engine.stats.interface_row(place) {
                part.show(row);
            }
            crate::progress::drive(&engine, part)?;
        }
        crate::progress::start_service(&engine)?;
        Ok(engine)
    }

    /// The settings the process runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Time since the engine started.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// What a module above keeps for the whole process: one value of each type, made when it is first asked for.
    pub(crate) fn part<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.registries.get()
    }

    pub(crate) fn new_pd_number(&self) -> u32 {
        self.next_pd.fetch_add(1, Ordering::Relaxed)
    }
}

impl AsRef<Progress> for Engine {
    fn as_ref(&self) -> &Progress {
        &self.progress
    }
}
