/* Pairs of sockets of every kind, and waiting. */
#ifndef WEFT_SOCKETS_ENV_H
#define WEFT_SOCKETS_ENV_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "../common/cases.h"

enum kind { TCP4, TCP6, UNIX_STREAM, UDP4, UDP6, UNIX_DGRAM, KINDS };

/* Milliseconds in which nothing is expected to happen. */
enum { QUIET = 30 };

const char *kind_name(enum kind kind);
int kind_family(enum kind kind);
int kind_type(enum kind kind);

/* CASE for each kind of stream, of datagram, of both: the body sees `kind`. */
#define KIND_CASE_(title, function, first, last)                                                                       \
	static void function(long);                                                                                    \
	__attribute__((constructor)) static void CASE_JOIN(add_, function)(void)                                       \
	{                                                                                                              \
		for (long k = (first); k <= (last); k++)                                                               \
			case_add(__FILE__, __LINE__, function, k, "%s.%s", kind_name((enum kind)k), title);            \
	}                                                                                                              \
	static void function(long kind __attribute__((unused)))
#define STREAMS(title) KIND_CASE_(title, CASE_JOIN(case_at_, __LINE__), TCP4, UNIX_STREAM)
#define DATAGRAMS(title) KIND_CASE_(title, CASE_JOIN(case_at_, __LINE__), UDP4, UNIX_DGRAM)
#define SOCKETS(title) KIND_CASE_(title, CASE_JOIN(case_at_, __LINE__), TCP4, UNIX_DGRAM)
#define TCPS(title) KIND_CASE_(title, CASE_JOIN(case_at_, __LINE__), TCP4, TCP6)
#define UDPS(title) KIND_CASE_(title, CASE_JOIN(case_at_, __LINE__), UDP4, UDP6)

/* Two connected sockets: of a stream the connecting and the accepted one. */
struct ends {
	int a, b;
};
struct ends ends_of(long kind);
void ends_close(struct ends e);

/* An address on loopback (port 0) or in the abstract namespace (automatic), and its length. */
struct name {
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
		struct sockaddr_storage storage;
	};
	socklen_t length;
};
struct name loopback(long kind);
struct name name_of(int fd);
struct name peer_of(int fd);
int port_of(int fd);

int a_socket(long kind);
/* Bound to loopback. */
int a_bound(long kind);
int a_listener(long kind, int backlog);
/* Closes a socket and keeps its address: nobody gets it who would answer there, and what goes there is refused. The
   keeper, or -1 where another process was quicker: then the case begins anew with another socket. */
int close_and_keep(long kind, int fd);

/* Waits for an event; what came, 0 for nothing. */
int wait_for(int fd, int events, int ms);
bool is_readable(int fd);
bool stays_quiet(int fd);
/* So many octets wait to be read. */
bool octets_come(int fd, int count);

/* All of it, however many calls it takes. */
bool send_all(int fd, const void *data, size_t length);
bool recv_all(int fd, void *data, size_t length);
void fill(void *at, size_t length, unsigned seed);
bool holds(const void *at, size_t length, unsigned seed);
/* A word goes from one to the other. */
void talks(int from, int to);
/* Writes until the socket takes no more (made non-blocking meanwhile); how many octets it took. */
size_t fill_up(int fd);

void set_nonblocking(int fd, bool on);
void set_int(int fd, int level, int option, int value);
int get_int(int fd, int level, int option);

/* For a case about signals or time: ends the storm in its process. */
void calm(void);
/* A handler that counts into `caught`. */
extern volatile sig_atomic_t caught;
void catch_signal(int signal, int flags);

/* Runs in a child process; true if it ended with status 0. */
bool in_child(void (*run)(void *), void *of);
pid_t start_child(void (*run)(void *), void *of);
bool child_ended_well(pid_t child);

/* Joins, or fails the case when the thread does not end. */
bool join_soon(pthread_t thread, void **result);

#endif
