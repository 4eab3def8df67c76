#include "env.h"

struct name loopback(long family)
{
	struct name n = {};

	if (family == AF_INET) {
		n.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
		n.length = sizeof(n.in);
	} else {
		n.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
		n.length = sizeof(n.in6);
	}
	return n;
}

struct name name_of(int fd)
{
	struct name n = {.length = sizeof(n.in6)};

	NEED(rgetsockname(fd, &n.any, &n.length) == 0);
	return n;
}

int an_rsocket(long family)
{
	int fd = rsocket((int)family, SOCK_STREAM, 0);

	NEED(fd >= 0);
	return fd;
}

int a_listener(long family)
{
	struct name n = loopback(family);
	int fd = an_rsocket(family);

	if (rbind(fd, &n.any, n.length) != 0 && errno == EADDRNOTAVAIL)
		SKIP("this machine has no IPv6 loopback");
	NEED(rlisten(fd, 16) == 0);
	return fd;
}

struct ends ends_of(long family)
{
	struct ends e = {.listener = a_listener(family), .a = an_rsocket(family)};
	struct name n = name_of(e.listener);

	NEED(rconnect(e.a, &n.any, n.length) == 0);
	e.b = raccept(e.listener, NULL, NULL);
	NEED(e.b >= 0);
	return e;
}

void ends_close(struct ends e)
{
	EQ(rclose(e.a), 0);
	EQ(rclose(e.b), 0);
	EQ(rclose(e.listener), 0);
}

bool ordinary_calls_are_seen(void)
{
	/* A library that was opened keeps its names to itself. */
	return dlsym(RTLD_DEFAULT, "weft_rsockets") != NULL;
}

void need_ordinary_calls(void)
{
	if (!ordinary_calls_are_seen())
		SKIP("nobody sees the ordinary calls in this way of loading");
}

void need_calm(void)
{
	if (case_storm)
		SKIP("a signal ends every wait");
}

int wait_for(int fd, int events, int ms)
{
	struct pollfd p = {.fd = fd, .events = (short)events};
	double end = now() + ms / 1000.0;
	int ready;

	/* A signal ends a wait, whatever it was installed with. */
	do {
		double left = end - now();
		ready = rpoll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
	} while (ready < 0 && errno == EINTR && now() < end);
	NEED(ready >= 0 || errno == EINTR);
	ready = ready < 0 ? 0 : ready;
	return ready ? p.revents : 0;
}

bool stays_quiet(int fd)
{
	return CHECKF(wait_for(fd, POLLIN, QUIET) == 0, "something is to be read");
}

bool send_all(int fd, const void *data, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t sent = rsend(fd, (const char *)data + done, length - done, 0);
		if (!CHECK(sent > 0))
			return false;
		done += (size_t)sent;
	}
	return true;
}

bool recv_all(int fd, void *data, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = rrecv(fd, (char *)data + done, length - done, 0);
		if (!CHECKF(got > 0, "%zd after %zu of %zu octets, errno %d", got, done, length, errno))
			return false;
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
	return CHECK(true);
}

void talks(int from, int to)
{
	char word[6] = "";

	EQ(rsend(from, "hello", 6, 0), 6);
	EQ(rrecv(to, word, 6, MSG_WAITALL), 6);
	SAME(word, "hello", 6);
}

void set_nonblocking(int fd, bool on)
{
	int flags = rfcntl(fd, F_GETFL);

	NEED(flags >= 0);
	NEED(rfcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

size_t fill_up(int fd)
{
	static char octets[65536];
	size_t total = 0;

	set_nonblocking(fd, true);
	/* What the other side's buffer takes moves on for a while. */
	for (int idle = 0; idle < 20;) {
		ssize_t sent = rsend(fd, octets, sizeof(octets), 0);
		if (sent > 0) {
			total += (size_t)sent;
			idle = 0;
			continue;
		}
		NEED(errno == EAGAIN);
		idle++;
		sleep_ms(5);
	}
	return total;
}

int get_int(int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof(value);

	NEED(rgetsockopt(fd, level, option, &value, &length) == 0);
	EQ(length, sizeof(value));
	return value;
}

pid_t start_child(void (*run)(void *), void *of)
{
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		run(of);
		exit(0);
	}
	return child;
}

bool child_ended_well(pid_t child)
{
	int status = -1;

	return CHECK(waitpid(child, &status, 0) == child) & CHECKF(status == 0, "the child's status is %#x", status);
}
