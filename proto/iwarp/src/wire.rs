//! Reading big-endian fields at fixed offsets.

/// The `N` octets at `at`. The caller has checked the length.
#[inline(always)]
fn array<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&octets[at..at + N]);
    value
}

#[inline(always)]
pub(crate) fn u16_at(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(octets, at))
}

#[inline(always)]
pub(crate) fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(octets, at))
}

#[inline(always)]
pub(crate) fn u64_at(octets: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(octets, at))
}
