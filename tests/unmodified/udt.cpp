// A file over UDT (Debian's libudt), as the library's own sample programs send one.
//
//   udt receive PORT FILE        takes one connection and writes what comes until it ends
//   udt send ADDRESS PORT FILE
#include <arpa/inet.h>
#include <udt/udt.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

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

static int transfer(UDTSOCKET s, char *octets, uint64_t length, bool out)
{
	for (uint64_t done = 0; done < length;) {
		uint64_t left = length - done;
		int most = static_cast<int>(left < 65536 ? left : 65536);
		int some = out ? UDT::send(s, octets + done, most, 0) : UDT::recv(s, octets + done, most, 0);
		if (some == UDT::ERROR)
			return die(out ? "send" : "recv");
		done += static_cast<uint64_t>(some);
	}
	return 0;
}

static int receive(const char *port, const char *name)
{
	UDTSOCKET listener = UDT::socket(AF_INET, SOCK_STREAM, 0);
	sockaddr_in at = address("127.0.0.1", port), peer{};
	int size = sizeof(peer);
	if (UDT::bind(listener, reinterpret_cast<sockaddr *>(&at), sizeof(at)) == UDT::ERROR ||
	    UDT::listen(listener, 1) == UDT::ERROR)
		return die("listen");
	UDTSOCKET s = UDT::accept(listener, reinterpret_cast<sockaddr *>(&peer), &size);
	if (s == UDT::INVALID_SOCK)
		return die("accept");
	uint64_t length = 0;
	if (transfer(s, reinterpret_cast<char *>(&length), sizeof(length), false))
		return 1;
	std::vector<char> octets(length);
	if (transfer(s, octets.data(), length, false))
		return 1;
	char done = 1;
	if (transfer(s, &done, 1, true))
		return 1;
	std::ofstream(name, std::ios::binary).write(octets.data(), static_cast<std::streamsize>(length));
	UDT::close(s);
	return 0;
}

static int send(const char *host, const char *port, const char *name)
{
	std::ifstream file(name, std::ios::binary);
	std::vector<char> octets{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
	uint64_t length = octets.size();
	UDTSOCKET s = UDT::socket(AF_INET, SOCK_STREAM, 0);
	sockaddr_in at = address(host, port);
	if (UDT::connect(s, reinterpret_cast<sockaddr *>(&at), sizeof(at)) == UDT::ERROR)
		return die("connect");
	char done = 0;
	if (transfer(s, reinterpret_cast<char *>(&length), sizeof(length), true) ||
	    transfer(s, octets.data(), length, true) || transfer(s, &done, 1, false))
		return 1;
	UDT::close(s);
	return done == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
	int status = 2;
	UDT::startup();
	if (argc == 4 && !std::strcmp(argv[1], "receive"))
		status = receive(argv[2], argv[3]);
	else if (argc == 5 && !std::strcmp(argv[1], "send"))
		status = send(argv[2], argv[3], argv[4]);
	UDT::cleanup();
	return status;
}
