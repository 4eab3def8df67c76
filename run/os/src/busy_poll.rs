//! Looking for what a thread waits for, for a moment, before it sleeps (decision 0056).
//!
//! [`short_waits`] says whether to, [`giving_way`] whether the core goes to others meanwhile.

pub mod giving_way;
pub mod short_waits;
