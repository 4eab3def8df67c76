"""What a capture of a cell has to show. Each check takes the connections (wire.Connection) and returns a complaint or None."""

import wire

EMSS_FPDU = 1460  # octets: no FPDU of one TCP segment on Ethernet is longer


def all_of(*checks):
    def check(connections):
        return next((complaint for complaint in (check(connections) for check in checks) if complaint), None)
    return check


def sides(connections):
    return [side for connection in connections for side in (connection.initiator, connection.responder)]


def revision(number):
    def check(connections):
        seen = [side.start.revision for side in sides(connections) if side.start]
        return None if seen and set(seen) == {number} else f"revisions {seen}"
    return check


def crc(wanted):
    """Every FPDU has a good CRC, or (without) none was asked for."""
    def check(connections):
        fpdus = [fpdu for side in sides(connections) for fpdu in side.fpdus]
        asked = any(side.start and side.start.crc for side in sides(connections))
        if asked != wanted:
            return f"CRC {'asked for' if asked else 'not asked for'}"
        bad = [fpdu.operation for fpdu in fpdus if wanted and not fpdu.crc_good]
        return f"bad CRC of a {bad[0]}" if bad or not fpdus else None
    return check


def ready_to_receive(kind):
    """The reply names this kind alone, and the initiator's first FPDU is one, empty."""
    def check(connections):
        for connection in connections:
            named = connection.responder.start.ready_to_receive()
            if named != [kind]:
                return f"the reply names {named}"
            first = connection.initiator.fpdus[0]
            empty = first.ulpdu[30:34] == bytes(4) if kind == "Read Request" else not first.payload
            if first.operation != kind or not empty:
                return f"the first FPDU is a {first.operation}"
        return None
    return check


def any_ready_to_receive(connections):
    return ready_to_receive(connections[0].responder.start.ready_to_receive()[0])(connections)


def no_ready_to_receive(connections):
    named = [side.start.peer_to_peer() for side in sides(connections)]
    return "peer-to-peer all the same" if any(named) else None


def large_fpdus(connections):
    """Both ends that sent bulk sent it in FPDUs beyond a TCP segment."""
    longest = max(len(fpdu.ulpdu) for side in sides(connections) for fpdu in side.fpdus)
    return None if longest > EMSS_FPDU else f"no ULPDU above {longest} octets"


def terminated(layer, error_type, code, mirrored):
    """The responder ends the connection with this Terminate, and only one."""
    def check(connections):
        found = [wire.terminate(fpdu) for side in sides(connections) for fpdu in side.fpdus
                 if fpdu.operation == "Terminate"]
        wanted = (layer, error_type, code, mirrored)
        if [(t.layer, t.error_type, t.code, t.mirrored) for t in found] != [wanted]:
            return f"Terminates: {'; '.join(map(str, found)) or 'none'}"
        return None
    return check
