/*
 * What a program can ask of Weft about a connection of librdmacm: how its TCP sends.
 *
 * An option of rdma_set_option(3) says so, for one rdma_cm_id:
 *
 *     char policy[] = "rate=950Mbit acks=1/64";
 *     rdma_set_option(id, RDMA_OPTION_WEFT, RDMA_OPTION_WEFT_TCP, policy, sizeof(policy));
 *
 * The text is one action of the rules that a person sets with --tcp, with its options and without conditions: `cubic`,
 * `reno`, `none` or `rate=1Gbit`, and behind each `acks=1/N` and `frame=OCTETS` (docs/adapter.md). It goes before those
 * rules. It may be set at any time: before rdma_connect for the connection that comes; on a listener for those that it
 * takes from then on; on a connection for what it sends from then on. Options that the text does not name stay as they
 * are.
 *
 * It works where the program's queue pairs have a TCP of Weft's own (`weft run --adapter`). Nothing has to be linked; a
 * program may always ask, and go on when it fails. rdma_set_option fails with
 *
 *     EINVAL      no such text; a line on standard error says what is wrong with it. Or the connection is over
 *     EOPNOTSUPP  the connection is the kernel's TCP, or the program has no other; or the id is for datagrams
 *     ENOSYS      another option of this level; or Weft is not there, and it is rdma-core's library that answers
 *
 * Where an id that was not connected yet turns out to have the kernel's TCP, the connection is made all the same, and a
 * line on standard error says that the policy is not followed.
 */
#ifndef WEFT_RDMA_H
#define WEFT_RDMA_H

/* The level: "WEFT" as a number, as SOL_WEFT is. */
#define RDMA_OPTION_WEFT 0x57454654

/* The option: a text, with its terminating zero or without. */
#define RDMA_OPTION_WEFT_TCP 1

#endif
