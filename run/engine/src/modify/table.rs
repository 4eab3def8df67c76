//! Which attributes each change of state needs and allows: the table of `ibv_modify_qp(3)`, which is the InfiniBand
//! specification's (11.2.5.2).

use weft_verbs::types::QpState;

use super::QpAttrMask as A;
use super::QpType;
use crate::error::Error;

/// What a reliable queue pair needs besides the state to go to RTR.
const RC_TO_RTR: A = A::AV
    .union(A::PATH_MTU)
    .union(A::DEST_QPN)
    .union(A::RQ_PSN)
    .union(A::MAX_DEST_RD_ATOMIC)
    .union(A::MIN_RNR_TIMER);
/// The same for RTS.
const RC_TO_RTS: A = A::TIMEOUT
    .union(A::RETRY_CNT)
    .union(A::RNR_RETRY)
    .union(A::SQ_PSN)
    .union(A::MAX_QP_RD_ATOMIC);

/// What a connected queue pair needs besides the state to go to RTR.
pub(super) fn to_rtr(kind: QpType) -> A {
    match kind {
        QpType::Rc => RC_TO_RTR,
        QpType::Uc => RC_TO_RTR - A::MAX_DEST_RD_ATOMIC - A::MIN_RNR_TIMER,
        QpType::Ud => A::empty(),
    }
}

/// What a queue pair needs besides the state to go to RTS.
pub(super) fn to_rts(kind: QpType) -> A {
    match kind {
        QpType::Rc => RC_TO_RTS,
        QpType::Uc | QpType::Ud => A::SQ_PSN,
    }
}

/// `(required, optional)` of a transition; `None` where there is no such transition.
fn attributes(kind: QpType, from: QpState, to: QpState) -> Option<(A, A)> {
    use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let reliable = kind == QpType::Rc;
    let of_kind = |ud: A, others: A| if kind == QpType::Ud { ud } else { others };
    let if_reliable = |mask: A| if reliable { mask } else { A::empty() };
    let init = A::PKEY_INDEX | A::PORT | of_kind(A::QKEY, A::ACCESS_FLAGS);
    let connected = A::ACCESS_FLAGS | A::ALT_PATH | A::PATH_MIG_STATE;
    let running =
        A::CUR_STATE | of_kind(A::QKEY, connected) | if_reliable(A::MIN_RNR_TIMER) | A::RATE_LIMIT;
    let nothing = A::empty();
    match (from, to) {
        (_, Reset | Error) => Some((nothing, nothing)),
        (Reset, Init) => Some((init, nothing)),
        (Init, Init) => Some((nothing, init)),
        (Init, Rtr) => {
            let optional = of_kind(A::QKEY, A::ALT_PATH | A::ACCESS_FLAGS) | A::PKEY_INDEX;
            Some((to_rtr(kind), optional))
        }
        (Rtr, Rts) => Some((to_rts(kind), running)),
        (Rts | Sqd, Rts) => Some((nothing, running)),
        (Sqe, Rts) if !reliable => Some((nothing, running)),
        (Rts, Sqd) => Some((nothing, A::EN_SQD_ASYNC_NOTIFY)),
        (Sqd, Sqd) => {
            let path = connected | A::AV | A::PKEY_INDEX;
            let retries = if_reliable(
                A::PORT
                    | A::TIMEOUT
                    | A::RETRY_CNT
                    | A::RNR_RETRY
                    | A::MAX_QP_RD_ATOMIC
                    | A::MAX_DEST_RD_ATOMIC
                    | A::MIN_RNR_TIMER,
            );
            Some((nothing, of_kind(A::PKEY_INDEX | A::QKEY, path) | retries))
        }
        _ => None,
    }
}

/// Compares what is named with the table.
///
/// # Errors
/// No such transition, an attribute is missing, or one is too many.
pub(super) fn check(kind: QpType, from: QpState, to: QpState, named: A) -> Result<(), Error> {
    let Some((required, optional)) = attributes(kind, from, to) else {
        return Err(Error::Invalid("a state that is not reached from here"));
    };
    if !named.contains(required) {
        return Err(Error::Invalid("an attribute is missing for that state"));
    }
    if !(required | optional | A::STATE).contains(named) {
        return Err(Error::Invalid(
            "an attribute does not change with that state",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::{Error as Failed, Init, Reset, Rtr, Rts, Sqd, Sqe};
    use QpType::{Rc, Uc, Ud};

    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Failed];

    fn is_taken(kind: QpType, from: QpState, to: QpState, named: A) -> bool {
        check(kind, from, to, named | A::STATE).is_ok()
    }

    #[test]
    fn the_way_up_is_there_for_every_type() {
        let init = A::PKEY_INDEX | A::PORT;
        for (kind, rest) in [(Rc, A::ACCESS_FLAGS), (Uc, A::ACCESS_FLAGS), (Ud, A::QKEY)] {
            assert!(is_taken(kind, Reset, Init, init | rest));
            assert!(!is_taken(kind, Reset, Init, init));
            assert!(!is_taken(kind, Reset, Init, init | rest | A::TIMEOUT));
        }
        assert!(is_taken(Ud, Rtr, Rts, A::SQ_PSN) && is_taken(Uc, Rtr, Rts, A::SQ_PSN));
        assert!(!is_taken(Rc, Rtr, Rts, A::SQ_PSN) && is_taken(Rc, Rtr, Rts, RC_TO_RTS));
        assert!(is_taken(Ud, Init, Rtr, A::empty()) && !is_taken(Ud, Init, Rtr, A::AV));
        assert!(is_taken(Rc, Init, Rtr, RC_TO_RTR) && !is_taken(Uc, Init, Rtr, RC_TO_RTR));
    }

    #[test]
    fn reset_and_error_are_reached_from_everywhere_and_take_nothing_else() {
        for (from, to) in STATES
            .into_iter()
            .flat_map(|from| [(from, Reset), (from, Failed)])
        {
            assert!(is_taken(Rc, from, to, A::empty()));
            assert!(!is_taken(Rc, from, to, A::PORT));
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_refused() {
        for (from, to) in [
            (Reset, Rtr),
            (Reset, Rts),
            (Init, Rts),
            (Rtr, Rtr),
            (Failed, Rts),
        ] {
            for kind in [Rc, Uc, Ud] {
                assert!(!is_taken(kind, from, to, A::empty()));
            }
        }
        assert!(is_taken(Ud, Sqe, Rts, A::empty()) && !is_taken(Rc, Sqe, Rts, A::empty()));
    }

    #[test]
    fn what_only_reliable_queue_pairs_have_is_refused_to_others() {
        let timer = A::MIN_RNR_TIMER;
        assert!(is_taken(Rc, Rts, Rts, timer) && !is_taken(Uc, Rts, Rts, timer));
        let retries = A::TIMEOUT | A::RETRY_CNT;
        assert!(is_taken(Rc, Sqd, Sqd, retries) && !is_taken(Uc, Sqd, Sqd, retries));
        for kind in [Rc, Uc] {
            assert!(is_taken(kind, Rts, Rts, A::ACCESS_FLAGS));
            assert!(is_taken(kind, Sqd, Sqd, A::PKEY_INDEX));
        }
    }
}
