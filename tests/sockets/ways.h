/* Every call that moves octets of a stream, by number and name: for tables of cases. */
#ifndef WEFT_SOCKETS_WAYS_H
#define WEFT_SOCKETS_WAYS_H

#include "env.h"

enum way_out {
	BY_WRITE,
	BY_WRITEV,
	BY_PWRITEV2,
	BY_SEND,
	BY_SENDTO,
	BY_SENDMSG,
	BY_SENDMMSG,
	BY_SENDFILE,
	BY_SPLICE_OUT,
	WAYS_OUT
};
enum way_in { BY_READ, BY_READV, BY_PREADV2, BY_RECV, BY_RECVFROM, BY_RECVMSG, BY_RECVMMSG, BY_SPLICE_IN, WAYS_IN };

/* Those that take the octets from memory, and that put them there, come first. */
enum { WAYS_OUT_OF_MEMORY = BY_SENDFILE, WAYS_INTO_MEMORY = BY_SPLICE_IN };

extern const char *const way_out_names[WAYS_OUT];
extern const char *const way_in_names[WAYS_IN];

/* One call. The result is the call's: how many octets, of all its messages; or -1 and errno. At most
   a megabyte by splice. */
ssize_t put(enum way_out how, int fd, const void *octets, size_t length);
ssize_t get(enum way_in how, int fd, void *octets, size_t room);

#endif
