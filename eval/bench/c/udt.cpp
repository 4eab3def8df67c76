// A file over UDT (Debian's libudt), by the library's own calls for files.
//
//   udt receive ADDRESS PORT FILE    says "ready", takes one connection, and writes what comes
//   udt send ADDRESS PORT FILE       sends it, waits until the other end has all of it, and prints what UDT counted
#include <arpa/inet.h>
#include <udt/udt.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

// Octets of a piece of a file, as UDT's own sample programs have it.
static const int BLOCK = 1 << 20;

static int die(const char *what)
{
	std::fprintf(stderr, "udt: %s: %s\n", what, UDT::getlasterror().getErrorMessage());
	return 1;
}

static sockaddr_in address(const char *host, const char *port)
{
	sockaddr_in at{};
	at.sin_family = AF_INET;
	at.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
	inet_pton(AF_INET, host, &at.sin_addr);
	return at;
}

// Sends or receives a few octets whole.
static bool whole(UDTSOCKET s, void *octets, int length, bool out)
{
	char *at = static_cast<char *>(octets);
	for (int done = 0; done < length;) {
		int some = out ? UDT::send(s, at + done, length - done, 0) : UDT::recv(s, at + done, length - done, 0);
		if (some == UDT::ERROR)
			return false;
		done += some;
	}
	return true;
}

static int receive(const sockaddr_in &at, const char *name)
{
	UDTSOCKET listener = UDT::socket(AF_INET, SOCK_STREAM, 0);
	if (UDT::bind(listener, reinterpret_cast<const sockaddr *>(&at), sizeof(at)) == UDT::ERROR ||
	    UDT::listen(listener, 1) == UDT::ERROR)
		return die("listen");
	std::puts("ready");
	std::fflush(stdout);
	sockaddr_in peer{};
	int size = sizeof(peer);
	UDTSOCKET s = UDT::accept(listener, reinterpret_cast<sockaddr *>(&peer), &size);
	if (s == UDT::INVALID_SOCK)
		return die("accept");
	int64_t length = 0, offset = 0;
	if (!whole(s, &length, sizeof(length), false))
		return die("recv");
	std::fstream file(name, std::ios::out | std::ios::binary | std::ios::trunc);
	if (UDT::recvfile(s, file, offset, length, BLOCK) != length)
		return die("recvfile");
	file.flush();
	char done = file.good();
	if (!whole(s, &done, 1, true))
		return die("send");
	UDT::close(s);
	return done ? 0 : 1;
}

static int send(const sockaddr_in &at, const char *name)
{
	std::fstream file(name, std::ios::in | std::ios::binary | std::ios::ate);
	if (!file.good()) {
		std::fprintf(stderr, "udt: cannot read %s\n", name);
		return 1;
	}
	int64_t length = file.tellg(), offset = 0;
	UDTSOCKET s = UDT::socket(AF_INET, SOCK_STREAM, 0);
	if (UDT::connect(s, reinterpret_cast<const sockaddr *>(&at), sizeof(at)) == UDT::ERROR)
		return die("connect");
	auto begun = std::chrono::steady_clock::now();
	char done = 0;
	if (!whole(s, &length, sizeof(length), true))
		return die("send");
	if (UDT::sendfile(s, file, offset, length, BLOCK) != length)
		return die("sendfile");
	if (!whole(s, &done, 1, false))
		return die("recv");
	std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
	UDT::TRACEINFO counted;
	if (UDT::perfmon(s, &counted, false) == UDT::ERROR)
		return die("perfmon");
	std::printf("seconds %.6f sent %lld again %d\n", took.count(), static_cast<long long>(counted.pktSentTotal),
		    counted.pktRetransTotal);
	UDT::close(s);
	return done == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		std::fprintf(stderr, "usage: udt receive|send ADDRESS PORT FILE\n");
		return 2;
	}
	int status = 2;
	sockaddr_in at = address(argv[2], argv[3]);
	UDT::startup();
	if (!std::strcmp(argv[1], "receive"))
		status = receive(at, argv[4]);
	else if (!std::strcmp(argv[1], "send"))
		status = send(at, argv[4]);
	UDT::cleanup();
	return status;
}
