//! Which attributes each change of state needs and allows: the table of `ibv_modify_qp(3)`, which is
//! the InfiniBand specification's (11.2.5.2).

use crate::entry::{invalid, Answer};
use crate::layout::numbers::*;

const ALT_PATH: i64 = IBV_QP_ALT_PATH;

/// What every type but UD may change again and again.
const RIGHTS: i64 = IBV_QP_ACCESS_FLAGS;

/// `(required, optional)` of a transition; `None` where there is no such transition.
fn attributes(kind: i64, from: i64, to: i64) -> Option<(i64, i64)> {
    let datagrams = kind == IBV_QPT_UD;
    let reliable = kind == IBV_QPT_RC;
    let of_kind = |ud: i64, others: i64| if datagrams { ud } else { others };
    let if_reliable = |mask: i64| if reliable { mask } else { 0 };
    let init = of_kind(
        IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        IBV_QP_PKEY_INDEX | IBV_QP_PORT | RIGHTS,
    );
    let connected = RIGHTS | ALT_PATH | IBV_QP_PATH_MIG_STATE;
    let running = IBV_QP_CUR_STATE
        | of_kind(IBV_QP_QKEY, connected)
        | if_reliable(IBV_QP_MIN_RNR_TIMER)
        | IBV_QP_RATE_LIMIT;
    match (from, to) {
        (_, IBV_QPS_RESET | IBV_QPS_ERR) => Some((0, 0)),
        (IBV_QPS_RESET, IBV_QPS_INIT) => Some((init, 0)),
        (IBV_QPS_INIT, IBV_QPS_INIT) => Some((0, init)),
        (IBV_QPS_INIT, IBV_QPS_RTR) => {
            let required = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            let reads = if_reliable(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
            let optional = of_kind(IBV_QP_QKEY, ALT_PATH | RIGHTS) | IBV_QP_PKEY_INDEX;
            Some((of_kind(0, required | reads), optional))
        }
        (IBV_QPS_RTR, IBV_QPS_RTS) => {
            let retries = if_reliable(
                IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
            );
            Some((IBV_QP_SQ_PSN | retries, running))
        }
        (IBV_QPS_RTS | IBV_QPS_SQD, IBV_QPS_RTS) => Some((0, running)),
        (IBV_QPS_SQE, IBV_QPS_RTS) if !reliable => Some((0, running)),
        (IBV_QPS_RTS, IBV_QPS_SQD) => Some((0, IBV_QP_EN_SQD_ASYNC_NOTIFY)),
        (IBV_QPS_SQD, IBV_QPS_SQD) => {
            let path = connected | IBV_QP_AV | IBV_QP_PKEY_INDEX;
            let retries = if_reliable(
                IBV_QP_PORT
                    | IBV_QP_TIMEOUT
                    | IBV_QP_RETRY_CNT
                    | IBV_QP_RNR_RETRY
                    | IBV_QP_MAX_QP_RD_ATOMIC
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER,
            );
            Some((0, of_kind(IBV_QP_PKEY_INDEX | IBV_QP_QKEY, path) | retries))
        }
        _ => None,
    }
}

/// Compares a mask with the table. Without a state in it, the queue pair stays in its own.
///
/// # Errors
/// `EINVAL`: no such transition, an attribute is missing, or one is too many.
pub fn check(kind: i64, from: i64, to: i64, mask: i64) -> Answer<()> {
    let Some((required, optional)) = attributes(kind, from, to) else {
        return invalid();
    };
    let known = required | optional | IBV_QP_STATE;
    if mask & required != required || mask & !known != 0 {
        return invalid();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: std::ops::RangeInclusive<i64> = IBV_QPS_RESET..=IBV_QPS_ERR;

    #[test]
    fn the_way_up_is_there_for_every_type() {
        let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        for (kind, rest) in [
            (IBV_QPT_RC, IBV_QP_ACCESS_FLAGS),
            (IBV_QPT_UC, IBV_QP_ACCESS_FLAGS),
            (IBV_QPT_UD, IBV_QP_QKEY),
        ] {
            let to_init = |mask| check(kind, IBV_QPS_RESET, IBV_QPS_INIT, mask);
            assert_eq!(to_init(init | rest), Ok(()));
            assert_eq!(to_init(init), invalid());
            assert_eq!(to_init(init | rest | IBV_QP_TIMEOUT), invalid());
        }
        let rts = |kind, mask| check(kind, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | mask);
        assert_eq!(rts(IBV_QPT_UD, IBV_QP_SQ_PSN), Ok(()));
        assert_eq!(rts(IBV_QPT_UC, IBV_QP_SQ_PSN), Ok(()));
        assert_eq!(rts(IBV_QPT_RC, IBV_QP_SQ_PSN), invalid());
        let rtr = |kind, mask| check(kind, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE | mask);
        assert_eq!(rtr(IBV_QPT_UD, 0), Ok(()));
        assert_eq!(rtr(IBV_QPT_UD, IBV_QP_AV), invalid());
    }

    #[test]
    fn reset_and_error_are_reached_from_everywhere_and_take_nothing_else() {
        for from in STATES {
            for to in [IBV_QPS_RESET, IBV_QPS_ERR] {
                assert_eq!(check(IBV_QPT_RC, from, to, IBV_QP_STATE), Ok(()));
                let more = IBV_QP_STATE | IBV_QP_PORT;
                assert_eq!(check(IBV_QPT_RC, from, to, more), invalid());
            }
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_refused() {
        for (from, to) in [
            (IBV_QPS_RESET, IBV_QPS_RTR),
            (IBV_QPS_RESET, IBV_QPS_RTS),
            (IBV_QPS_INIT, IBV_QPS_RTS),
            (IBV_QPS_RTR, IBV_QPS_RTR),
            (IBV_QPS_ERR, IBV_QPS_RTS),
        ] {
            for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
                assert_eq!(check(kind, from, to, IBV_QP_STATE), invalid());
            }
        }
        let again = |kind| check(kind, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE);
        assert_eq!((again(IBV_QPT_UD), again(IBV_QPT_RC)), (Ok(()), invalid()));
    }
}
