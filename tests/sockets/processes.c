/* Sockets across fork, vfork and exec. */
#include "env.h"

#include <spawn.h>

/* --- fork */

static void child_sends(void *of)
{
	struct ends *e = of;

	EQ(send(e->a, "from the child", 14, 0), 14);
}

SOCKETS("fork.the-child-sends")
{
	struct ends e = ends_of(kind);
	char got[32] = "";

	CHECK(in_child(child_sends, &e));
	EQ(recv(e.b, got, 32, 0), 14);
	SAME(got, "from the child", 14);
	/* The child's end did not end ours. */
	talks(e.a, e.b);
	talks(e.b, e.a);
	ends_close(e);
}

static void child_closes(void *of)
{
	struct ends *e = of;

	EQ(close(e->a), 0);
	EQ(close(e->b), 0);
}

SOCKETS("fork.the-child-closes")
{
	struct ends e = ends_of(kind);

	CHECK(in_child(child_closes, &e));
	talks(e.a, e.b);
	talks(e.b, e.a);
	ends_close(e);
}

static void child_shuts_down(void *of)
{
	struct ends *e = of;

	EQ(shutdown(e->a, SHUT_WR), 0);
}

STREAMS("fork.the-child-shuts-down-for-all")
{
	struct ends e = ends_of(kind);
	char got[8];

	CHECK(in_child(child_shuts_down, &e));
	EQ(recv(e.b, got, 8, 0), 0);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	ends_close(e);
}

static void child_waits(void *of)
{
	struct ends *e = of;
	char got[8];

	close(e->b);
	/* The parent has closed its end; ours keeps the stream open. */
	NEED(recv_all(e->a, got, 4));
	EQ(send(e->a, "bye!", 4, 0), 4);
}

STREAMS("fork.the-child-keeps-it-open")
{
	struct ends e = ends_of(kind);
	char got[8] = "";
	pid_t child = start_child(child_waits, &e);

	EQ(close(e.a), 0);
	EQ(send(e.b, "ask?", 4, 0), 4);
	NEED(recv_all(e.b, got, 4));
	SAME(got, "bye!", 4);
	EQ(recv(e.b, got, 4, 0), 0);
	CHECK(child_ended_well(child));
	EQ(close(e.b), 0);
}

static void child_takes_one(void *of)
{
	struct ends *e = of;
	char got[2];

	EQ(recv(e->b, got, 1, 0), 1);
	EQ(got[0], 'a');
}

STREAMS("fork.octets-are-shared-out")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "abc", 3, 0), 3);
	CHECK(in_child(child_takes_one, &e));
	EQ(recv(e.b, got, 8, 0), 2);
	SAME(got, "bc", 2);
	ends_close(e);
}

static void child_sets_nonblocking(void *of)
{
	set_nonblocking(((struct ends *)of)->a, true);
}

SOCKETS("fork.status-flags-are-shared")
{
	struct ends e = ends_of(kind);

	CHECK(in_child(child_sets_nonblocking, &e));
	CHECK(fcntl(e.a, F_GETFL) & O_NONBLOCK);
	ends_close(e);
}

static void child_accepts(void *of)
{
	int got = accept(*(int *)of, NULL, NULL);

	CHECK(got >= 0);
	EQ(send(got, "served", 6, 0), 6);
}

STREAMS("fork.the-child-accepts")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind);
	struct name name = name_of(listener);
	char got[8] = "";
	pid_t child = start_child(child_accepts, &listener);

	EQ(close(listener), 0);
	NEED(connect(fd, &name.any, name.length) == 0);
	NEED(recv_all(fd, got, 6));
	CHECK(child_ended_well(child));
	EQ(recv(fd, got, 6, 0), 0);
	EQ(close(fd), 0);
}

static void child_forks(void *of)
{
	CHECK(in_child(child_sends, of));
}

SOCKETS("fork.of-a-fork")
{
	struct ends e = ends_of(kind);
	char got[32];

	CHECK(in_child(child_forks, &e));
	EQ(recv(e.b, got, 32, 0), 14);
	ends_close(e);
}

STREAMS("fork.a-killed-child-ends-only-its-own")
{
	struct ends e = ends_of(kind);
	pid_t child = fork();
	int status;

	NEED(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	EQ(kill(child, SIGKILL), 0);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("vfork.the-child-execs")
{
	struct ends e = ends_of(kind);
	pid_t child = vfork();

	if (child == 0) {
		execl("/bin/true", "true", NULL);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("vfork.the-child-arranges-descriptors")
{
	struct ends e = ends_of(kind);
	char number[16], got[32] = "";
	snprintf(number, sizeof(number), "%d", e.a);
	pid_t child = vfork();

	if (child == 0) {
		/* As shells and servers do it. */
		dup2(e.a, 1);
		close(e.a);
		close(e.b);
		execl("/bin/echo", "echo", "by echo", NULL);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	EQ(recv(e.b, got, 32, 0), 8);
	SAME(got, "by echo\n", 8);
	/* What the child closed is open here. */
	talks(e.a, e.b);
	ends_close(e);
}

/* --- exec */

static pid_t run(const char *script, const char *argument)
{
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", script, "sh", argument, NULL);
		_exit(127);
	}
	return child;
}

SOCKETS("exec.a-socket-is-inherited")
{
	struct ends e = ends_of(kind);
	char got[32] = "", path[32];

	NEED(dup2(e.a, 9) == 9);
	snprintf(path, sizeof(path), "hello");
	CHECK(child_ended_well(run("echo $1 >&9", path)));
	EQ(recv(e.b, got, 32, 0), 6);
	SAME(got, "hello\n", 6);
	EQ(close(9), 0);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("exec.close-on-exec-is-closed")
{
	struct ends e = ends_of(kind);

	NEED(dup3(e.a, 9, O_CLOEXEC) == 9);
	CHECK(child_ended_well(run("if (echo x >&9) 2>/dev/null; then exit 1; fi", "")));
	CHECK(stays_quiet(e.b));
	talks(9, e.b);
	EQ(close(9), 0);
	ends_close(e);
}

STREAMS("exec.the-program-reads-and-writes")
{
	struct ends e = ends_of(kind);
	char got[32] = "";

	NEED(dup2(e.a, 9) == 9);
	EQ(close(e.a), 0);
	pid_t child = run("exec 0<&9 1>&9 9>&-; while read word; do echo \"<$word>\"; done", "");
	EQ(close(9), 0);
	EQ(send(e.b, "one\ntwo\n", 8, 0), 8);
	NEED(recv_all(e.b, got, 12));
	SAME(got, "<one>\n<two>\n", 12);
	EQ(shutdown(e.b, SHUT_WR), 0);
	EQ(recv(e.b, got, 32, 0), 0);
	CHECK(child_ended_well(child));
	EQ(close(e.b), 0);
}

SOCKETS("exec.posix_spawn-with-actions")
{
	struct ends e = ends_of(kind);
	posix_spawn_file_actions_t actions;
	char *const arguments[] = {"echo", "spawned", NULL}, got[32] = "";
	pid_t child;

	NEED(posix_spawn_file_actions_init(&actions) == 0);
	NEED(posix_spawn_file_actions_adddup2(&actions, e.a, 1) == 0);
	NEED(posix_spawn_file_actions_addclose(&actions, e.b) == 0);
	EQ(posix_spawn(&child, "/bin/echo", &actions, NULL, arguments, environ), 0);
	CHECK(child_ended_well(child));
	EQ(recv(e.b, (char *)got, 32, 0), 8);
	SAME(got, "spawned\n", 8);
	posix_spawn_file_actions_destroy(&actions);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("exec.popen-closes-nothing-of-ours")
{
	struct ends e = ends_of(kind);
	FILE *pipe = popen("cat >/dev/null", "w");

	NEED(pipe);
	fputs("words", pipe);
	EQ(pclose(pipe), 0);
	talks(e.a, e.b);
	ends_close(e);
}
