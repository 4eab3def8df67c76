/* TCP: connecting without waiting, listeners that share a port, a full backlog. */
#include <dirent.h>
#include <fcntl.h>

#include "asked.h"

static int connecting(long kind, const struct name *to)
{
	int fd = a_socket(kind);

	set_nonblocking(fd, true);
	int result = connect(fd, &to->any, to->length);
	CHECK(result == 0 || errno == EINPROGRESS || errno == ECONNREFUSED);
	return fd;
}

TCPS("connect.without-waiting")
{
	int listener = a_listener(kind, 4);
	struct name name = name_of(listener);
	int fd = connecting(kind, &name);

	EQ(wait_for(fd, POLLOUT, patience), POLLOUT);
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
	/* Linux says once that it is done, then that it was. */
	int again = connect(fd, &name.any, name.length);
	CHECK(again == 0 || errno == EISCONN);
	FAILS(connect(fd, &name.any, name.length), EISCONN);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("connect.without-waiting-is-refused")
{
	int keeper;

	while ((keeper = close_and_keep(kind, a_listener(kind, 4))) < 0)
		;
	struct name name = name_of(keeper);
	int fd = connecting(kind, &name);
	int events = wait_for(fd, POLLOUT, patience);
	CHECK(events & POLLOUT);
	CHECK(events & POLLERR);
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	/* Told once. */
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(fd), 0);
	EQ(close(keeper), 0);
}

TCPS("connect.without-waiting-reset-before-anything-was-said")
{
	struct linger at_once = {1, 0};
	char octet;

	int pipe_ends[2];

	NEED(pipe2(pipe_ends, O_NONBLOCK) == 0);
	for (int way = 0; way < 3; way++) {
		int listener = a_listener(kind, 4);
		struct name name = name_of(listener);
		int fd = connecting(kind, &name), end = accept(listener, NULL, NULL);
		NEED(end >= 0);
		NEED(setsockopt(end, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0 && close(end) == 0);
		sleep_ms(QUIET);
		if (way == 1)
			CHECK(wait_for(fd, POLLIN, patience) & POLLHUP);
		if (way == 2)
			FAILS(splice(fd, NULL, pipe_ends[1], NULL, 9, SPLICE_F_NONBLOCK), ECONNRESET);
		else
			FAILS(recv(fd, &octet, 1, MSG_DONTWAIT), ECONNRESET);
		EQ(recv(fd, &octet, 1, MSG_DONTWAIT), 0);
		EQ(close(fd), 0);
		EQ(close(listener), 0);
	}
	EQ(close(pipe_ends[0]) + close(pipe_ends[1]), 0);
}

TCPS("connect.refused-tried-again-on-the-same-socket")
{
	int fd = a_socket(kind), listener;

	while ((listener = close_and_keep(kind, a_listener(kind, 4))) < 0)
		;
	struct name name = name_of(listener);
	FAILS(connect(fd, &name.any, name.length), ECONNREFUSED);
	NEED(listen(listener, 1) == 0);
	EQ(connect(fd, &name.any, name.length), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("connect.of-another-family-is-refused")
{
	int fd = a_socket(kind);
	struct name name = loopback(kind == TCP4 ? TCP6 : TCP4);

	name.in.sin_port = htons(9);
	EQ(connect(fd, &name.any, name.length), -1);
	CHECK(errno == EAFNOSUPPORT || errno == EINVAL);
	EQ(close(fd), 0);
}

TCPS("connect.gives-an-ephemeral-port")
{
	struct ends e = ends_of(kind);

	CHECK(port_of(e.a) >= 1024);
	CHECK(port_of(e.a) != port_of(e.b));
	ends_close(e);
}

TCPS("connect.dissolved-by-af_unspec")
{
	struct ends e = ends_of(kind);
	struct sockaddr nothing = {.sa_family = AF_UNSPEC};
	struct name name = {.length = sizeof(name.storage)};

	EQ(connect(e.a, &nothing, sizeof(nothing)), 0);
	FAILS(getpeername(e.a, &name.any, &name.length), ENOTCONN);
	ends_close(e);
}

TCPS("connect.to-itself")
{
	/* A simultaneous open with oneself: the socket is its own peer. */
	int fd = a_bound(kind);
	struct name name = name_of(fd);
	char got[8];

	EQ(connect(fd, &name.any, name.length), 0);
	EQ(send(fd, "self", 4, 0), 4);
	EQ(recv(fd, got, 8, 0), 4);
	EQ(close(fd), 0);
}

CASE("tcp.v4-connects-to-a-v6-listener-of-both")
{
	int listener = a_socket(TCP6);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	struct name from = {.length = sizeof(from.storage)};

	set_int(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	NEED(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 1) == 0);
	struct name name = loopback(TCP4);
	name.in.sin_port = htons((uint16_t)port_of(listener));
	int fd = a_socket(TCP4);
	EQ(connect(fd, &name.any, name.length), 0);
	int got = accept(listener, &from.any, &from.length);
	NEED(got >= 0);
	EQ(from.any.sa_family, AF_INET6);
	CHECK(IN6_IS_ADDR_V4MAPPED(&from.in6.sin6_addr));
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

CASE("tcp.v6-only-refuses-v4")
{
	int fd = a_socket(TCP4), listener, keeper;
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	struct name name = loopback(TCP4);

	/* The port of v4 is another, which somebody may have. */
	for (;;) {
		listener = a_socket(TCP6);
		set_int(listener, IPPROTO_IPV6, IPV6_V6ONLY, 1);
		NEED(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 1) == 0);
		name.in.sin_port = htons((uint16_t)port_of(listener));
		keeper = a_socket(TCP4);
		if (bind(keeper, &name.any, name.length) == 0)
			break;
		NEED(errno == EADDRINUSE && close(keeper) == 0 && close(listener) == 0);
	}
	FAILS(connect(fd, &name.any, name.length), ECONNREFUSED);
	EQ(close(fd), 0);
	EQ(close(keeper), 0);
	EQ(close(listener), 0);
}

TCPS("fast-open-connect-is-taken-or-refused")
{
	int listener = a_listener(kind, 2), fd = a_socket(kind);
	struct name name = name_of(listener);
	char got[8];

	ssize_t sent = sendto(fd, "fast", 4, MSG_FASTOPEN, &name.any, name.length);
	if (sent < 0 && errno == EOPNOTSUPP)
		SKIP("fast open is off on this machine (net.ipv4.tcp_fastopen)");
	EQ(sent, 4);
	int end = accept(listener, NULL, NULL);
	NEED(end >= 0);
	NEED(recv_all(end, got, 4));
	EQ(close(end), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("reuseaddr.a-listener-again-at-once")
{
	struct ends e;
	int listener = a_socket(kind);
	struct name name = loopback(kind);

	set_int(listener, SOL_SOCKET, SO_REUSEADDR, 1);
	NEED(bind(listener, &name.any, name.length) == 0 && listen(listener, 2) == 0);
	name = name_of(listener);
	e.a = a_socket(kind);
	NEED(connect(e.a, &name.any, name.length) == 0);
	NEED((e.b = accept(listener, NULL, NULL)) >= 0);
	EQ(close(listener), 0);
	/* The server's side closes first and waits. */
	EQ(close(e.b), 0);
	EQ(close(e.a), 0);
	int again = a_socket(kind);
	set_int(again, SOL_SOCKET, SO_REUSEADDR, 1);
	EQ(bind(again, &name.any, name.length), 0);
	EQ(listen(again, 1), 0);
	EQ(close(again), 0);
}

TCPS("reuseport.listeners-share")
{
	int one = a_socket(kind), two = a_socket(kind);
	struct name name = loopback(kind);

	set_int(one, SOL_SOCKET, SO_REUSEPORT, 1);
	set_int(two, SOL_SOCKET, SO_REUSEPORT, 1);
	NEED(bind(one, &name.any, name.length) == 0);
	name = name_of(one);
	EQ(bind(two, &name.any, name.length), 0);
	EQ(listen(one, 64), 0);
	EQ(listen(two, 64), 0);
	int fds[20], taken = 0;
	for (int i = 0; i < 20; i++) {
		fds[i] = a_socket(kind);
		NEED(connect(fds[i], &name.any, name.length) == 0);
	}
	set_nonblocking(one, true);
	set_nonblocking(two, true);
	double end = deadline();
	while (taken < 20 && now() < end) {
		int got = accept(one, NULL, NULL);
		if (got < 0)
			got = accept(two, NULL, NULL);
		if (got >= 0) {
			taken++;
			close(got);
		}
	}
	EQ(taken, 20);
	for (int i = 0; i < 20; i++)
		EQ(close(fds[i]), 0);
	EQ(close(one), 0);
	EQ(close(two), 0);
}

TCPS("backlog-full-makes-the-next-wait")
{
	int listener = a_listener(kind, 0), one = a_socket(kind);
	struct name name = name_of(listener);

	NEED(connect(one, &name.any, name.length) == 0);
	int two = connecting(kind, &name);
	/* The queue holds one more than asked for; this one waits. */
	CHECK(!(wait_for(two, POLLOUT, QUIET) & POLLERR));
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	CHECK(wait_for(two, POLLOUT, patience) & POLLOUT);
	EQ(get_int(two, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(got), 0);
	EQ(close(one), 0);
	EQ(close(two), 0);
	EQ(close(listener), 0);
}

/* How often threads of this process with this name have gone to sleep. */
static long sleeps_of(const char *thread)
{
	DIR *tasks = opendir("/proc/self/task");
	long sum = 0;

	NEED(tasks);
	for (struct dirent *task; (task = readdir(tasks));) {
		char path[300], line[200];
		bool is_it = false;
		long sleeps = 0;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		FILE *status = fopen(path, "r");
		while (status && fgets(line, sizeof(line), status)) {
			is_it |= strncmp(line, "Name:\t", 6) == 0 && strncmp(line + 6, thread, strlen(thread)) == 0;
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps) == 1 && is_it)
				sum += sleeps;
		}
		if (status)
			fclose(status);
	}
	closedir(tasks);
	return sum;
}

TCPS("connect.a-host-that-does-not-answer-is-not-looked-at-all-the-time")
{
	need_weft();
	int listener = a_bound(kind), one = a_socket(kind), two = a_socket(kind);
	struct name name = name_of(listener);

	NEED(ask(listener, WEFT_DDP_OFF) == 0 && listen(listener, 0) == 0);

	/* The queue holds one more than asked for; the next is not answered. */
	NEED(ask(one, WEFT_DDP_OFF) == 0 && connect(one, &name.any, name.length) == 0);
	NEED(ask(two, WEFT_DDP_REQUIRE) == 0);
	set_nonblocking(two, true);
	FAILS(connect(two, &name.any, name.length), EINPROGRESS);
	sleep_ms(700);
	long before = sleeps_of("weft-flush");
	sleep_ms(300);
	long looks = sleeps_of("weft-flush") - before;
	CHECKF(looks > 0 && looks < 100, "%ld looks in 300 ms", looks);
	/* And what begins DDP leaves all the same, once it is answered. */
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	CHECK(wait_for(two, POLLOUT, patience) & POLLOUT);
	EQ(close(got), 0);
	got = accept(listener, NULL, NULL);
	NEED(got >= 0 && wait_for(got, POLLIN, patience));
	EQ(close(got), 0);
	EQ(close(one), 0);
	EQ(close(two), 0);
	EQ(close(listener), 0);
}
