/*
 * A program of ordinary sockets, one client and one server, for librspreload, which makes rsockets of them:
 *
 *     echo PORT [server [ADDRESS]]   takes octets until the client ends its direction, and sends them back
 *     echo PORT client [ADDRESS]     sends 3 MiB and compares what comes back
 *
 * ADDRESS is the server's, 127.0.0.1 where it is not said.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OCTETS = 3 << 20 };

static unsigned char sent[OCTETS], got[OCTETS];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void send_all(int fd, const unsigned char *octets, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t now = send(fd, octets + done, length - done, 0);
		if (now <= 0)
			fail("send");
		done += (size_t)now;
	}
}

static size_t receive_to_the_end(int fd)
{
	size_t done = 0;

	while (done < OCTETS) {
		struct pollfd readable = {fd, POLLIN, 0};
		if (poll(&readable, 1, -1) < 0)
			fail("poll");
		ssize_t now = recv(fd, got + done, OCTETS - done, 0);
		if (now < 0)
			fail("recv");
		if (now == 0)
			break;
		done += (size_t)now;
	}
	return done;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	at.sin_port = htons((uint16_t)atoi(argv[1]));
	if (argc > 3 && inet_pton(AF_INET, argv[3], &at.sin_addr) != 1)
		return 2;
	if (argc > 2 && strcmp(argv[2], "client") == 0) {
		for (size_t i = 0; i < OCTETS; i++)
			sent[i] = (unsigned char)(i * 7 + (i >> 9));
		if (connect(fd, (struct sockaddr *)&at, sizeof(at)))
			fail("connect");
		send_all(fd, sent, OCTETS);
		if (shutdown(fd, SHUT_WR))
			fail("shutdown");
		if (receive_to_the_end(fd) != OCTETS || memcmp(sent, got, OCTETS) != 0)
			fail("what came back is not what was sent");
		puts("the same came back");
		return close(fd);
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 4))
		fail("listen");
	puts("listens");
	fflush(stdout);
	int client = accept(fd, NULL, NULL);
	if (client < 0)
		fail("accept");
	send_all(client, got, receive_to_the_end(client));
	return close(client) | close(fd);
}
