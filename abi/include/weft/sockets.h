/*
 * What a program can ask of Weft about its own sockets: of TCP that their octets go as DDP, of UDP (WEFT_SO_RATE, at
 * the end) that what they send over connections of Weft's goes at a rate.
 *
 * A socket option says so, for one socket of TCP before it is connected or listens:
 *
 *     int mode = WEFT_DDP_PREFER;
 *     setsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &mode, sizeof(mode));
 *
 * It goes before the rules that a person has set (--ddp, WEFT_DDP). The sockets that a listener accepts have its mode.
 * Copies of the descriptor in a process (dup, SCM_RIGHTS) are the same socket. A forked child has what was asked until
 * then, and what either asks later is its own; a program that is started by exec begins with the rules again.
 *
 * Nothing has to be linked. The option is served where Weft's socket hooks are loaded: under `weft run` with any rule
 * for sockets; `weft run --ddp off PROGRAM` is a rule that serves the option and changes nothing else. Without them it
 * is the kernel that answers, as it does to options it does not know: on TCP sockets setsockopt fails with ENOPROTOOPT,
 * and getsockopt with ENOPROTOOPT or EOPNOTSUPP. So a program may always ask, and go on as TCP when it fails. The same
 * goes for a program that has confined itself (seccomp, PR_SET_NO_NEW_PRIVS).
 */
#ifndef WEFT_SOCKETS_H
#define WEFT_SOCKETS_H

/*
 * The level: "WEFT" as a number. Linux has protocol numbers (below 256) as levels and SOL_ numbers that count up from
 * there (fewer than 300), BSD 0xffff; none of them will come to a number that somebody spelt.
 */
#define SOL_WEFT 0x57454654

/*
 * The option. setsockopt takes an int, one of the modes below; getsockopt gives a struct weft_ddp, or as much of it as
 * there is room for: into an int goes the mode.
 *
 * setsockopt fails with
 *   EINVAL      a value or a length that is none; or the socket listens already
 *   EISCONN     the socket is connected, or is being connected
 *   EFAULT      the value cannot be read
 *   ENOPROTOOPT another option of this level; or not a TCP socket; or Weft is not there
 *   EBADF, ENOTSOCK   as ever
 *
 * Other sockets than TCP over IPv4 and IPv6 (datagrams, Unix sockets, Multipath TCP) are the kernel's: their answer is
 * the one without Weft.
 */
#define WEFT_SO_DDP 1

/* As TCP. */
#define WEFT_DDP_OFF 0
/* As DDP where the other end can, else as TCP. */
#define WEFT_DDP_PREFER 1
/* As DDP. Where that cannot be, connect, listen and accept fail with EOPNOTSUPP; a line on standard error says why. */
#define WEFT_DDP_REQUIRE 2
/* In struct weft_ddp only: nothing was asked for, and the rules decide when the socket is connected or listens. */
#define WEFT_DDP_BY_RULE (-1)

/* What getsockopt gives. Later versions may add members behind these. */
struct weft_ddp {
	int mode;   /* the mode in force: one of the above */
	int state;  /* what came of it: WEFT_DDP_STATE_ */
	int reason; /* why: WEFT_DDP_REASON_ */
};

/* Not decided: the socket has not been connected and does not listen, or connect or listen was refused. */
#define WEFT_DDP_STATE_UNDECIDED 0
/* Its octets go as TCP; a listener's: those of the connections that it accepts. */
#define WEFT_DDP_STATE_TCP 1
/* Its octets go as DDP. */
#define WEFT_DDP_STATE_DDP 2

/* Nothing to explain. */
#define WEFT_DDP_REASON_NONE 0
/* The mode is off. */
#define WEFT_DDP_REASON_OFF 1
/* The C library or the kernel reads or writes it in ways that Weft does not see (fdopen, dprintf, aio_read ...), or
   counts its octets for the program (SO_ZEROCOPY, SO_PEEK_OFF). */
#define WEFT_DDP_REASON_RELEASED 2
/* It was connected before Weft saw it: inherited, received from another process, or by a bare system call. */
#define WEFT_DDP_REASON_FOUND 3
/* There is no room for another connection over DDP. */
#define WEFT_DDP_REASON_NO_ROOM 4
/* With WEFT_DDP_PREFER: the other end is not Weft, or does not say so. */
#define WEFT_DDP_REASON_NOT_THERE 5
/* Octets leave with the SYN (MSG_FASTOPEN, TCP_FASTOPEN_CONNECT): before anybody can know what the other end is. */
#define WEFT_DDP_REASON_TOO_EARLY 6

/*
 * The rate of a UDP socket whose datagrams may travel over connections of Weft's (weft run --udp 'uoe ...'): a
 * uint64_t, in bits of packets a second, 64000 at least; 0: no rate of its own, as every socket begins.
 *
 *     uint64_t rate = 50000000;
 *     setsockopt(fd, SOL_WEFT, WEFT_SO_RATE, &rate, sizeof(rate));
 *
 * From then on the socket has connections of its own, shared with no other socket, that send at this rate. Those of
 * the adapter (over=adapter) send so whatever is lost, without control of congestion; those of the kernel's TCP no
 * faster. A program that sends as fast as it can is held back then instead of losing datagrams: a send that may block
 * waits until there is room, and one that may not fails with EAGAIN. While there is no connection yet, or it takes
 * nothing, a send that may block goes by the rate as well, and what the socket's queue has no room for is lost. What
 * goes plainly is not held back, so a program that relies on the rate runs under `uoe require`.
 *
 * It may be set at any time. Set before the first send it costs nothing; later the socket's datagrams may find no
 * connection for a moment, and wait or go plainly as the rule says.
 *
 * setsockopt fails with
 *   EINVAL      a length that is none, or a rate from 1 to 63999
 *   EFAULT      the value cannot be read
 *   ENOPROTOOPT another option of this level; no rule lets datagrams travel so; or Weft is not there
 *   EBADF, ENOTSOCK   as ever
 */
#define WEFT_SO_RATE 2

#endif
