//! The software RNIC as data: PD, MR, CQ, SRQ, QP.
