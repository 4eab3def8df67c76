/* Streams of the C library on sockets: what they read and write goes by ways of its own. */
#include "env.h"


STREAMS("stdio.prints-and-reads-lines")
{
	struct ends e = ends_of(kind);
	FILE *out = fdopen(e.a, "w"), *in = fdopen(e.b, "r");
	char line[64];

	NEED(out && in);
	CHECK(fprintf(out, "line %d\nsecond\n", 1) > 0);
	EQ(fflush(out), 0);
	CHECK(fgets(line, sizeof(line), in) && strcmp(line, "line 1\n") == 0);
	CHECK(fgets(line, sizeof(line), in) && strcmp(line, "second\n") == 0);
	EQ(fclose(out), 0);
	CHECK(fgets(line, sizeof(line), in) == NULL);
	CHECK(feof(in));
	EQ(fclose(in), 0);
	FAILS(close(e.a), EBADF);
}

STREAMS("stdio.unbuffered")
{
	struct ends e = ends_of(kind);
	FILE *out = fdopen(e.a, "w");
	char got[16];

	NEED(out && setvbuf(out, NULL, _IONBF, 0) == 0);
	CHECK(fputs("now", out) >= 0);
	NEED(recv_all(e.b, got, 3));
	SAME(got, "now", 3);
	EQ(fclose(out), 0);
	EQ(close(e.b), 0);
}

STREAMS("stdio.dprintf")
{
	struct ends e = ends_of(kind);
	char got[16];

	EQ(dprintf(e.a, "%s %d", "number", 5), 8);
	NEED(recv_all(e.b, got, 8));
	SAME(got, "number 5", 8);
	ends_close(e);
}

STREAMS("stdio.both-ways-on-two-files")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a);
	FILE *in = fdopen(e.a, "r"), *out = fdopen(copy, "w");
	char line[64], got[8];

	NEED(in && out);
	EQ(send(e.b, "ask\n", 4, 0), 4);
	CHECK(fgets(line, sizeof(line), in) && strcmp(line, "ask\n") == 0);
	CHECK(fputs("answer", out) >= 0);
	EQ(fclose(out), 0);
	NEED(recv_all(e.b, got, 6));
	EQ(fclose(in), 0);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(e.b), 0);
}

STREAMS("stdio.large-blocks")
{
	struct ends e = ends_of(kind);
	FILE *out = fdopen(e.a, "w"), *in = fdopen(e.b, "r");
	static char octets[60000], got[60000];

	NEED(out && in);
	fill(octets, sizeof(octets), 2);
	EQ(fwrite(octets, 1, sizeof(octets), out), sizeof(octets));
	EQ(fflush(out), 0);
	EQ(fread(got, 1, sizeof(got), in), sizeof(got));
	CHECK(holds(got, sizeof(got), 2));
	EQ(fclose(out), 0);
	EQ(fclose(in), 0);
}

STREAMS("stdio.the-standard-streams-moved-to-a-socket")
{
	struct ends e = ends_of(kind);
	char got[16];
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		dup2(e.a, STDOUT_FILENO);
		printf("printed");
		fflush(stdout);
		_exit(0);
	}
	CHECK(child_ended_well(child));
	NEED(recv_all(e.b, got, 7));
	SAME(got, "printed", 7);
	ends_close(e);
}

/* What was sent and printed in turns arrives in that order: the stream does not overtake. */
SOCKETS("stdio.after-sends-of-the-programs-own")
{
	struct ends e = ends_of(kind);
	char got[16] = "";

	for (int i = 0; i < 8; i++)
		EQ(send(e.a, "send", 4, 0), 4);
	FILE *out = fdopen(e.a, "w");
	NEED(out);
	EQ(fileno(out), e.a);
	CHECK(fprintf(out, "%s", "last") == 4);
	EQ(fflush(out), 0);
	for (int i = 0; i < 8; i++) {
		NEED(recv_all(e.b, got, 4));
		SAME(got, "send", 4);
	}
	NEED(recv_all(e.b, got, 4));
	SAME(got, "last", 4);
	EQ(fclose(out), 0);
	EQ(close(e.b), 0);
}

DATAGRAMS("stdio.a-flush-is-a-datagram-and-a-read-is-one")
{
	struct ends e = ends_of(kind);
	FILE *out = fdopen(e.a, "w"), *in = fdopen(e.b, "r");
	char line[16];

	NEED(out && in && setvbuf(in, NULL, _IOFBF, 4096) == 0);
	for (int i = 0; i < 5; i++) {
		CHECK(fprintf(out, "number %d\n", i) > 0);
		EQ(fflush(out), 0);
	}
	for (int i = 0; i < 5; i++) {
		CHECK(fgets(line, sizeof(line), in) && line[7] == '0' + i && line[8] == '\n');
		/* One read takes one datagram: what follows still waits in the socket. */
		EQ(is_readable(e.b), i < 4);
	}
	EQ(fclose(out), 0);
	EQ(fclose(in), 0);
}

STREAMS("stdio.one-file-both-ways")
{
	struct ends e = ends_of(kind);
	FILE *file = fdopen(e.a, "r+");
	char line[16], got[8];

	NEED(file);
	CHECK(fputs("ask\n", file) >= 0);
	EQ(fflush(file), 0);
	NEED(recv_all(e.b, got, 4));
	EQ(write(e.b, "answer\n", 7), 7);
	CHECK(fgets(line, sizeof(line), file) && strcmp(line, "answer\n") == 0);
	FAILS(fseek(file, 0, SEEK_SET), ESPIPE);
	EQ(fclose(file), 0);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(e.b), 0);
}

STREAMS("stdio.beside-calls-on-the-descriptor")
{
	struct ends e = ends_of(kind);
	FILE *out = fdopen(e.a, "w");
	char got[16];

	NEED(out);
	CHECK(fputs("one ", out) >= 0);
	EQ(fflush(out), 0);
	EQ(write(fileno(out), "two ", 4), 4);
	EQ(dprintf(fileno(out), "three"), 5);
	NEED(recv_all(e.b, got, 13));
	SAME(got, "one two three", 13);
	EQ(fclose(out), 0);
	EQ(close(e.b), 0);
}

STREAMS("stdio.a-connection-that-is-gone-is-an-error")
{
	struct ends e = ends_of(kind);
	FILE *out = fdopen(e.a, "w");

	NEED(out);
	signal(SIGPIPE, SIG_IGN);
	EQ(shutdown(e.a, SHUT_WR), 0);
	CHECK(fputs("lost", out) >= 0);
	FAILS(fflush(out), EPIPE);
	CHECK(ferror(out));
	fclose(out);
	EQ(close(e.b), 0);
}

/* As inetd and popen have it: another program has the socket as its standard streams. */
STREAMS("stdio.the-standard-streams-of-a-shell")
{
	struct ends e = ends_of(kind);
	char got[16];
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		close(e.b);
		dup2(e.a, STDIN_FILENO);
		dup2(e.a, STDOUT_FILENO);
		close(e.a);
		execl("/bin/sh", "sh", "-c", "read word; echo \"got $word\"", NULL);
		_exit(127);
	}
	EQ(close(e.a), 0);
	EQ(write(e.b, "this\n", 5), 5);
	NEED(recv_all(e.b, got, 9));
	SAME(got, "got this\n", 9);
	EQ(recv(e.b, got, 16, 0), 0);
	CHECK(child_ended_well(child));
	EQ(close(e.b), 0);
}

STREAMS("stdio.the-output-of-popen-is-a-socket")
{
	struct ends e = ends_of(kind);
	char got[16];
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		dup2(e.a, STDOUT_FILENO);
		FILE *shell = popen("cat", "w");
		if (!shell || fputs("through cat", shell) < 0)
			_exit(1);
		_exit(pclose(shell) == 0 ? 0 : 1);
	}
	CHECK(child_ended_well(child));
	NEED(recv_all(e.b, got, 11));
	SAME(got, "through cat", 11);
	ends_close(e);
}
