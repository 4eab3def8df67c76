/* Pairs of sockets of every kind, and waiting. */
#include "env.h"

#include <time.h>

volatile sig_atomic_t caught;

static const struct {
	const char *name;
	int family, type;
} kinds[KINDS] = {
	{"tcp4", AF_INET, SOCK_STREAM}, {"tcp6", AF_INET6, SOCK_STREAM}, {"unix-stream", AF_UNIX, SOCK_STREAM},
	{"udp4", AF_INET, SOCK_DGRAM},	{"udp6", AF_INET6, SOCK_DGRAM},	 {"unix-dgram", AF_UNIX, SOCK_DGRAM},
};

const char *kind_name(enum kind kind)
{
	return kinds[kind].name;
}

int kind_family(enum kind kind)
{
	return kinds[kind].family;
}

int kind_type(enum kind kind)
{
	return kinds[kind].type;
}

int a_socket(long kind)
{
	int fd = socket(kinds[kind].family, kinds[kind].type, 0);

	if (fd < 0 && errno == EAFNOSUPPORT)
		SKIP("this machine has no %s", kinds[kind].name);
	NEED(fd >= 0);
	return fd;
}

struct name loopback(long kind)
{
	struct name name = {};

	switch (kinds[kind].family) {
	case AF_INET:
		name.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		name.length = sizeof(name.in);
		break;
	case AF_INET6:
		name.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
		name.length = sizeof(name.in6);
		break;
	default:
		/* Only the family: the kernel gives an abstract name. */
		name.un = (struct sockaddr_un){.sun_family = AF_UNIX};
		name.length = sizeof(sa_family_t);
	}
	return name;
}

struct name name_of(int fd)
{
	struct name name = {.length = sizeof(name.storage)};

	NEED(getsockname(fd, &name.any, &name.length) == 0);
	return name;
}

struct name peer_of(int fd)
{
	struct name name = {.length = sizeof(name.storage)};

	NEED(getpeername(fd, &name.any, &name.length) == 0);
	return name;
}

int port_of(int fd)
{
	struct name name = name_of(fd);

	return ntohs(name.any.sa_family == AF_INET6 ? name.in6.sin6_port : name.in.sin_port);
}

int a_bound(long kind)
{
	int fd = a_socket(kind);
	struct name name = loopback(kind);

	if (bind(fd, &name.any, name.length) != 0 && errno == EADDRNOTAVAIL)
		SKIP("this machine has no loopback address of %s", kinds[kind].name);
	return fd;
}

int a_listener(long kind, int backlog)
{
	int fd = a_bound(kind);

	NEED(listen(fd, backlog) == 0);
	return fd;
}

int close_and_keep(long kind, int fd)
{
	struct name name = name_of(fd);

	EQ(close(fd), 0);
	int keeper = a_socket(kind);
	if (bind(keeper, &name.any, name.length) != 0) {
		EQ(errno, EADDRINUSE);
		EQ(close(keeper), 0);
		return -1;
	}
	/* A stream does not listen. Datagrams it takes from itself alone. */
	if (kinds[kind].type == SOCK_DGRAM)
		NEED(connect(keeper, &name.any, name.length) == 0);
	return keeper;
}

struct ends ends_of(long kind)
{
	struct ends e;

	if (kinds[kind].type == SOCK_DGRAM) {
		e.a = a_bound(kind);
		e.b = a_bound(kind);
		struct name a = name_of(e.a), b = name_of(e.b);
		NEED(connect(e.a, &b.any, b.length) == 0);
		NEED(connect(e.b, &a.any, a.length) == 0);
		return e;
	}
	int listener = a_listener(kind, 1);
	struct name name = name_of(listener);
	e.a = a_socket(kind);
	NEED(connect(e.a, &name.any, name.length) == 0);
	NEED((e.b = accept(listener, NULL, NULL)) >= 0);
	NEED(close(listener) == 0);
	return e;
}

void ends_close(struct ends e)
{
	EQ(close(e.a), 0);
	EQ(close(e.b), 0);
}

int wait_for(int fd, int events, int ms)
{
	struct pollfd p = {.fd = fd, .events = (short)events};
	double end = now() + ms / 1e3;
	int got;

	do {
		int left = (int)((end - now()) * 1e3 + 0.999);
		got = poll(&p, 1, left > 0 ? left : 0);
	} while (got < 0 && errno == EINTR);
	return got == 1 ? p.revents : 0;
}

bool is_readable(int fd)
{
	return wait_for(fd, POLLIN, patience) & POLLIN;
}

bool stays_quiet(int fd)
{
	return wait_for(fd, POLLIN, QUIET) == 0;
}

bool octets_come(int fd, int count)
{
	int there = 0;

	for (double end = deadline(); there < count && now() < end; sleep_ms(1))
		NEED(ioctl(fd, FIONREAD, &there) == 0);
	return CHECKF(there >= count, "%d of %d octets came", there, count);
}

bool send_all(int fd, const void *data, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = send(fd, (const char *)data + done, length - done, MSG_NOSIGNAL);
		if (got < 0 && errno == EAGAIN) {
			wait_for(fd, POLLOUT, patience);
			continue;
		}
		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

bool recv_all(int fd, void *data, size_t length)
{
	for (size_t done = 0; done < length;) {
		if (!is_readable(fd))
			return CHECKF(false, "%zu of %zu octets came", done, length);
		ssize_t got = recv(fd, (char *)data + done, length - done, 0);
		if (got <= 0)
			return CHECKF(false, "recv gives %zd after %zu of %zu octets", got, done, length);
		done += (size_t)got;
	}
	return true;
}

void fill(void *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		((unsigned char *)at)[i] = (unsigned char)(seed + i * 7 + (i >> 8) * 13);
}

bool holds(const void *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (((const unsigned char *)at)[i] != (unsigned char)(seed + i * 7 + (i >> 8) * 13))
			return CHECKF(false, "octet %zu of %zu is %#x", i, length, ((const unsigned char *)at)[i]);
	return true;
}

size_t fill_up(int fd)
{
	static char octets[4096];
	size_t total = 0;
	int flags = fcntl(fd, F_GETFL);

	NEED(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
	/* What the other side's buffer takes moves on for a while. */
	for (int idle = 0; idle < 12;) {
		ssize_t got = send(fd, octets, sizeof(octets), MSG_NOSIGNAL);
		if (got > 0) {
			total += (size_t)got;
			idle = 0;
		} else {
			NEED(errno == EAGAIN);
			idle++;
			sleep_ms(10);
		}
	}
	NEED(fcntl(fd, F_SETFL, flags) == 0);
	return total;
}

void set_nonblocking(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	NEED(flags >= 0);
	NEED(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

void set_int(int fd, int level, int option, int value)
{
	NEED(setsockopt(fd, level, option, &value, sizeof(value)) == 0);
}

int get_int(int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof(value);

	NEED(getsockopt(fd, level, option, &value, &length) == 0);
	EQ(length, sizeof(value));
	return value;
}

void calm(void)
{
	struct itimerval off = {};

	setitimer(ITIMER_REAL, &off, NULL);
	case_storm = false;
}

static void count_signal(int signal)
{
	(void)signal;
	caught++;
}

void catch_signal(int signal, int flags)
{
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};

	NEED(sigaction(signal, &action, NULL) == 0);
}

pid_t start_child(void (*run)(void *), void *of)
{
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		run(of);
		_exit(0);
	}
	return child;
}

bool child_ended_well(pid_t child)
{
	int status = -1;
	pid_t got;

	do
		got = waitpid(child, &status, 0);
	while (got < 0 && errno == EINTR);
	return CHECKF(got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %#x",
		      (unsigned)status);
}

bool in_child(void (*run)(void *), void *of)
{
	return child_ended_well(start_child(run, of));
}

bool join_soon(pthread_t thread, void **result)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += patience / 1000 + 1;
	return CHECKF(pthread_clockjoin_np(thread, result, CLOCK_MONOTONIC, &end) == 0, "the thread did not end");
}

void talks(int from, int to)
{
	char got[8] = "";

	EQ(send(from, "talk", 4, MSG_NOSIGNAL), 4);
	NEED(is_readable(to));
	EQ(recv(to, got, 8, 0), 4);
	SAME(got, "talk", 4);
}
