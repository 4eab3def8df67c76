//! Which interfaces have a device of their own (decision 0050).

/// Devices for interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// One device, which stands for every address of the machine.
    #[default]
    One,
    /// A device for each interface by which others can be reached.
    All,
    /// A device for each of these interfaces, in this order.
    Named(Vec<String>),
}

/// Octets of an interface's name at most (IFNAMSIZ without its NUL).
const NAME_OCTETS_MAX: usize = 15;

/// What is accepted, as a phrase.
pub const ACCEPTS: &str = "one, all, or names of interfaces separated by commas, each once";

impl Devices {
    /// Reads `one`, `all`, or names of interfaces. An interface called `one` or `all` is meant by `one,`.
    pub fn parse(text: &str) -> Option<Devices> {
        match text {
            "one" => return Some(Devices::One),
            "all" => return Some(Devices::All),
            _ => {}
        }
        let names = text.trim_end_matches(',').split(',').map(str::trim);
        let names: Vec<String> = names.map(str::to_owned).collect();
        let twice = |(at, name): (usize, &String)| names[..at].contains(name);
        let usable = names.iter().all(|name| is_name(name)) && !names.iter().enumerate().any(twice);
        usable.then_some(Devices::Named(names))
    }
}

/// The kernel lets an interface have this name.
fn is_name(name: &str) -> bool {
    let forbidden = |octet: u8| octet.is_ascii_whitespace() || matches!(octet, b'/' | b':');
    !name.is_empty()
        && name.len() <= NAME_OCTETS_MAX
        && name != "."
        && name != ".."
        && !name.bytes().any(forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_words() {
        let named = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            Some(Devices::Named(names))
        };
        assert_eq!(Devices::parse("one"), Some(Devices::One));
        assert_eq!(Devices::parse("all"), Some(Devices::All));
        assert_eq!(Devices::parse("eth0"), named(&["eth0"]));
        assert_eq!(Devices::parse("eth1, eth0"), named(&["eth1", "eth0"]));
        assert_eq!(Devices::parse("all,"), named(&["all"]));
    }

    #[test]
    fn what_no_interface_can_be_called_is_refused() {
        for text in [
            "",
            ",",
            "eth0,,eth1",
            "eth0,eth0",
            "a name",
            "../x",
            "a:b",
            "..",
            "sixteen-octets-1",
        ] {
            assert_eq!(Devices::parse(text), None, "{text:?}");
        }
        assert!(Devices::parse("fifteen-octets1").is_some());
    }
}
