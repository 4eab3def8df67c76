use echo::{first_device, End, Failed, MESSAGE_MAX};

/// Two ends that know each other's names.
fn pair() -> Result<(End, End), Failed> {
    let device = first_device()?;
    let (mut one, mut other) = (End::new(&device)?, End::new(&device)?);
    let (name, other_name) = (one.name(), other.name());
    // Each may wait for the other to do the same.
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| one.connect(other_name));
        other.connect(name)?;
        connecting.join().expect("no panic")
    })?;
    Ok((one, other))
}

#[test]
fn a_message_comes_back() -> Result<(), Failed> {
    let (mut one, mut other) = pair()?;
    for message in [&b"is there an echo?"[..], &[7; MESSAGE_MAX]] {
        other.expect()?;
        one.expect()?;
        one.send(message)?;
        let heard = other.receive()?.to_vec();
        other.send(&heard)?;
        assert_eq!(one.receive()?, message);
    }
    Ok(())
}

#[test]
fn what_is_too_long_is_refused() -> Result<(), Failed> {
    let (mut one, _other) = pair()?;
    assert!(one.send(&[0; MESSAGE_MAX + 1]).is_err());
    Ok(())
}
