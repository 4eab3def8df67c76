/* Processes that fork: a child opens the device for itself, and what is its parent's goes on. */
#include <spawn.h>
#include <sys/wait.h>

#include "env.h"

extern char **environ;

/* A child that does this; its checks count as the case's. */
static pid_t child_of(void (*act)(void *), void *argument)
{
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		act(argument);
		case_end();
	}
	return child;
}

/* Ends as it should. */
static void joined(pid_t child)
{
	int status = -1;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	CHECKF(status == 0, "a child ended with status %#x", status);
}

static void in_child(void (*act)(void *), void *argument)
{
	joined(child_of(act, argument));
}

/* As a program does that begins: the device is found and opened anew. */
static void open_anew(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	NEED(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (strcmp(ibv_get_device_name(list[i]), ibv_get_device_name(env.ctx->device)) == 0)
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	NEED(ctx && ctx != env.ctx);
	env.ctx = ctx;
}

/* Messages one way and a Read back, compared. */
static void traffic(struct pair *p, int rounds, unsigned seed)
{
	for (int i = 0; i < rounds; i++) {
		fill(p->a.buf, 3000, seed + i);
		EQ(post_recv(&p->b, i, 0, 3000), 0);
		EQ(send_of(&p->a, i, IBV_SEND_SIGNALED, 0, 3000), 0);
		WORKS(p->a.scq, i);
		WORKS(p->b.rcq, i);
		CHECK(holds(p->b.buf, 3000, seed + i));
		EQ(post(&p->a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 8192, 3000, &p->b, 0), 0);
		WORKS(p->a.scq, i);
		if (!CHECK(holds(p->a.buf + 8192, 3000, seed + i)))
			break;
	}
}

/* Everything from the device on, used and ended. */
static void whole_life(void *seed)
{
	struct pair own;

	open_anew();
	pair_up(&own, (struct wish){});
	traffic(&own, 10, *(unsigned *)seed);
	pair_down(&own);
	EQ(ibv_close_device(env.ctx), 0);
}

CASE("fork.a-child-opens-the-device-for-itself")
{
	struct pair p;
	unsigned seed = 100;

	pair_up(&p, (struct wish){});
	traffic(&p, 3, 1);
	in_child(whole_life, &seed);
	traffic(&p, 10, 2);
	pair_down(&p);
}

CASE("fork.a-child-of-a-parent-that-listed-only")
{
	unsigned seed = 5;
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list);
	in_child(whole_life, &seed);
	ibv_free_device_list(list);
}

static void leaves_by_exit(void *seed)
{
	struct pair own;

	open_anew();
	pair_up(&own, (struct wish){});
	traffic(&own, 3, *(unsigned *)seed);
	/* With what a library does at exit; its own connection is open, and so is its parent's. */
	exit(0);
}

CASE("fork.a-child-that-leaves-with-connections-leaves-its-parents")
{
	struct pair p;
	unsigned seed = 9;

	pair_up(&p, (struct wish){});
	for (int i = 0; i < 3; i++) {
		in_child(leaves_by_exit, &seed);
		traffic(&p, 3, i);
	}
	pair_down(&p);
}

static void with_a_child_of_its_own(void *seed)
{
	struct pair own;
	unsigned next = *(unsigned *)seed + 1;

	open_anew();
	pair_up(&own, (struct wish){});
	traffic(&own, 3, *(unsigned *)seed);
	in_child(whole_life, &next);
	traffic(&own, 3, *(unsigned *)seed);
	pair_down(&own);
}

CASE("fork.a-grandchild-opens-the-device-too")
{
	struct pair p;
	unsigned seed = 20;

	pair_up(&p, (struct wish){});
	in_child(with_a_child_of_its_own, &seed);
	traffic(&p, 3, 4);
	pair_down(&p);
}

CASE("fork.many-children-at-once")
{
	enum { CHILDREN = 6 };
	pid_t children[CHILDREN];
	unsigned seeds[CHILDREN];
	struct pair p;

	pair_up(&p, (struct wish){});
	for (int i = 0; i < CHILDREN; i++) {
		seeds[i] = 100 * i;
		children[i] = child_of(whole_life, &seeds[i]);
		traffic(&p, 2, i);
	}
	for (int i = 0; i < CHILDREN; i++)
		joined(children[i]);
	traffic(&p, 3, 77);
	pair_down(&p);
}

/* --- forks while other threads work */

struct busy {
	struct pair pair;
	pthread_t thread[3];
	bool over;
	int posted, completed;
};

static void *post_on_and_on(void *argument)
{
	struct busy *busy = argument;

	while (!__atomic_load_n(&busy->over, __ATOMIC_SEQ_CST)) {
		int mine = __atomic_add_fetch(&busy->posted, 1, __ATOMIC_SEQ_CST);
		while (mine - __atomic_load_n(&busy->completed, __ATOMIC_SEQ_CST) > 40)
			usleep(10);
		struct side *a = &busy->pair.a;
		NEED(post(a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, &busy->pair.b, 0) == 0);
	}
	return NULL;
}

static void *poll_on_and_on(void *argument)
{
	struct busy *busy = argument;
	struct ibv_wc wc;
	double end = now() + patience / 1e3;

	while (!__atomic_load_n(&busy->over, __ATOMIC_SEQ_CST) || busy->completed < busy->posted) {
		int got = ibv_poll_cq(busy->pair.a.scq, 1, &wc);
		NEED(got >= 0);
		if (got == 1) {
			NEED(wc.status == IBV_WC_SUCCESS);
			__atomic_add_fetch(&busy->completed, 1, __ATOMIC_SEQ_CST);
			end = now() + patience / 1e3;
		}
		NEED(now() < end);
	}
	return NULL;
}

CASE("fork.amid-the-posts-and-polls-of-other-threads")
{
	struct busy busy = {};

	pair_up(&busy.pair, (struct wish){});
	NEED(pthread_create(&busy.thread[0], NULL, post_on_and_on, &busy) == 0);
	NEED(pthread_create(&busy.thread[1], NULL, post_on_and_on, &busy) == 0);
	NEED(pthread_create(&busy.thread[2], NULL, poll_on_and_on, &busy) == 0);
	for (unsigned i = 0; i < 20; i++)
		in_child(whole_life, &i);
	__atomic_store_n(&busy.over, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 3; i++)
		pthread_join(busy.thread[i], NULL);
	EQ(busy.completed, busy.posted);
	traffic(&busy.pair, 3, 1);
	pair_down(&busy.pair);
}

static void *fork_here(void *seed)
{
	in_child(whole_life, seed);
	return NULL;
}

CASE("fork.from-a-thread")
{
	pthread_t thread;
	struct pair p;
	unsigned seed = 30;

	pair_up(&p, (struct wish){});
	NEED(pthread_create(&thread, NULL, fork_here, &seed) == 0);
	pthread_join(thread, NULL);
	traffic(&p, 3, 1);
	pair_down(&p);
}

/* --- relatives that talk to each other */

static void listens(void *to)
{
	struct pair p = {};

	open_anew();
	NEED(p.events = rdma_create_event_channel());
	p.listener = listen_on(p.events, AF_INET, 8);
	int port = rdma_get_src_port(p.listener);
	NEED(write(*(int *)to, &port, sizeof(port)) == sizeof(port));
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive_qp(&p);
	EQ(post_recv(&p.b, 1, 0, 5000), 0);
	NEED(rdma_accept(p.b.id, NULL) == 0);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	WORKS(p.b.rcq, 1);
	EQ(send_of(&p.b, 2, IBV_SEND_SIGNALED, 0, 5000), 0);
	WORKS(p.b.scq, 2);
	expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
}

static void connects(void *from)
{
	struct pair p = {};
	int port = 0;

	open_anew();
	NEED(read(*(int *)from, &port, sizeof(port)) == sizeof(port));
	NEED(p.events = rdma_create_event_channel());
	p.a.id = new_id(p.events);
	NEED(rdma_resolve_addr(p.a.id, NULL, address(AF_INET, port), patience) == 0);
	expected(p.events, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(rdma_resolve_route(p.a.id, patience) == 0);
	expected(p.events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	active_qp(&p);
	EQ(post_recv(&p.a, 1, 8192, 5000), 0);
	NEED(rdma_connect(p.a.id, NULL) == 0);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	fill(p.a.buf, 5000, 3);
	EQ(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 5000), 0);
	WORKS(p.a.scq, 2);
	WORKS(p.a.rcq, 1);
	CHECK(holds(p.a.buf + 8192, 5000, 3));
	EQ(rdma_disconnect(p.a.id), 0);
	expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
}

CASE("fork.two-children-connect-to-each-other")
{
	struct pair p;
	int ends[2];

	need_cm();
	pair_up(&p, (struct wish){});
	NEED(pipe(ends) == 0);
	pid_t one = child_of(listens, &ends[1]), other = child_of(connects, &ends[0]);
	joined(one);
	joined(other);
	traffic(&p, 3, 1);
	pair_down(&p);
}

CASE("fork.parent-and-child-connect-to-each-other")
{
	struct pair p;
	int ends[2];

	need_cm();
	pair_up(&p, (struct wish){});
	NEED(pipe(ends) == 0);
	pid_t child = child_of(listens, &ends[1]);
	connects(&ends[0]);
	joined(child);
	traffic(&p, 3, 1);
}

/* --- children that execute another program */

CASE("fork.other-programs-are-started")
{
	char *command[] = {"true", NULL};
	struct pair p;
	pid_t child;

	pair_up(&p, (struct wish){});
	for (int i = 0; i < 5; i++) {
		NEED(posix_spawnp(&child, command[0], NULL, NULL, command, environ) == 0);
		joined(child);
		EQ(system("true"), 0);
		child = vfork();
		if (child == 0) {
			execvp(command[0], command);
			_exit(127);
		}
		joined(child);
		traffic(&p, 2, i);
	}
	pair_down(&p);
}
