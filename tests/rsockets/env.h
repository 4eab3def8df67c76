/* Two connected rsockets, and what is asked of them again and again. */
#ifndef WEFT_RSOCKETS_ENV_H
#define WEFT_RSOCKETS_ENV_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <rdma/rsocket.h>

#include "../common/cases.h"

/* Milliseconds in which nothing is expected to happen. */
enum { QUIET = 50 };

/* CASE for IPv4 and for IPv6: the body sees `family`. */
#define FAMILY_CASE_(title, function)                                                                                  \
	static void function(long);                                                                                    \
	__attribute__((constructor)) static void CASE_JOIN(add_, function)(void)                                       \
	{                                                                                                              \
		case_add(__FILE__, __LINE__, function, AF_INET, "%s-by-ipv4", title);                                  \
		case_add(__FILE__, __LINE__, function, AF_INET6, "%s-by-ipv6", title);                                 \
	}                                                                                                              \
	static void function(long family __attribute__((unused)))
#define FAMILIES(title) FAMILY_CASE_(title, CASE_JOIN(case_at_, __LINE__))

/* The connecting and the accepted one, and the listener. */
struct ends {
	int a, b, listener;
};
struct ends ends_of(long family);
void ends_close(struct ends e);

struct name {
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	};
	socklen_t length;
};
/* Loopback, any port. */
struct name loopback(long family);
struct name name_of(int fd);
int an_rsocket(long family);
int a_listener(long family);

/* Whether ordinary calls come to Weft too (`weft run`), or the functions of rsocket(7) alone. */
bool ordinary_calls_are_seen(void);
void need_ordinary_calls(void);

/* For cases of waits, which every signal ends. */
void need_calm(void);
/* Waits for an event; what came, 0 for nothing. */
int wait_for(int fd, int events, int ms);
bool stays_quiet(int fd);

/* All of it, however many calls it takes. */
bool send_all(int fd, const void *data, size_t length);
bool recv_all(int fd, void *data, size_t length);
void fill(void *at, size_t length, unsigned seed);
bool holds(const void *at, size_t length, unsigned seed);
/* A word goes from one to the other. */
void talks(int from, int to);
/* Writes until the socket takes no more (made non-blocking for that); how many octets it took. */
size_t fill_up(int fd);
void set_nonblocking(int fd, bool on);
int get_int(int fd, int level, int option);

/* Runs in a child process; true if it ended with status 0. */
pid_t start_child(void (*run)(void *), void *of);
bool child_ended_well(pid_t child);

#endif
