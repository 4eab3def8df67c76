/* A process with connections: signals, threads, and nothing left behind. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "edge.h"

static void on_alarm(int signal)
{
	(void)signal;
}

/* An alarm every so many milliseconds, until it is 0: the first may ring before the call that it is for. */
static void every(int ms, int flags)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
	struct timeval in = {.tv_usec = ms * 1000};
	struct itimerval timer = {.it_value = in, .it_interval = in};

	NEED(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static struct pair p;

/* Sends a message when the alarm has long rung. */
static void *send_late(void *unused)
{
	(void)unused;
	sleep_ms(100);
	NEED(post(&p.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0) == 0);
	return NULL;
}

CASE("life.a-signal-ends-a-wait-for-a-connection-event")
{
	struct rdma_cm_event *event;

	pair_up(&p, (struct wish){});
	every(30, 0);
	FAILS(rdma_get_cm_event(p.events, &event), EINTR);
	every(0, 0);
	pair_down(&p);
}

CASE("life.a-signal-ends-a-wait-for-a-completion-event")
{
	struct ibv_cq *cq;
	void *context;

	pair_up(&p, (struct wish){});
	every(30, 0);
	FAILS(ibv_get_cq_event(p.a.channel, &cq, &context), EINTR);
	every(0, 0);
	pair_down(&p);
}

CASE("life.a-signal-that-restarts-system-calls-ends-no-wait")
{
	sigset_t alarm_only, before;
	pthread_t thread;

	pair_up(&p, (struct wish){});
	double start = now();
	EQ(post_recv(&p.b, 1, 0, 64), 0);
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	/* The alarm is for this thread, not for the other. */
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm_only, &before);
	NEED(pthread_create(&thread, NULL, send_late, NULL) == 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	every(30, SA_RESTART);
	take_event(&p.b, p.b.rcq);
	every(0, SA_RESTART);
	CHECK(now() - start >= 0.09);
	pthread_join(thread, NULL);
	pair_down(&p);
}

enum { THREADS = 4, ROUNDS = 1000 };

struct worker {
	pthread_t thread;
	int good;
};

/* A connection of the thread's own, and everything done to it. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	struct pair own;
	struct ibv_wc wc;
	unsigned char *extra = malloc(8192);

	pair_up(&own, (struct wish){});
	for (int i = 0; i < ROUNDS; i++) {
		fill(own.a.buf, 256, i);
		struct ibv_mr *mr = ibv_reg_mr(own.a.pd, extra, 8192, IBV_ACCESS_LOCAL_WRITE);
		if (!mr || post_recv(&own.b, i, 0, 256) ||
		    post(&own.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 256, NULL, 0) || !reap(own.a.scq, &wc) ||
		    wc.status || !reap(own.b.rcq, &wc) || wc.status || !holds(own.b.buf, 256, i) ||
		    post(&own.b, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 4096, 256, &own.a, 0) ||
		    !reap(own.b.scq, &wc) || wc.status || !holds(own.b.buf + 4096, 256, i) ||
		    ibv_dereg_mr(mr))
			break;
		worker->good++;
	}
	pair_down(&own);
	free(extra);
	return NULL;
}

CASE("life.threads-with-connections-of-their-own")
{
	struct worker workers[THREADS] = {};

	for (int i = 0; i < THREADS; i++)
		NEED(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		EQ(workers[i].good, ROUNDS);
	}
}

static struct pair shared;
static int posted, completions;

static void *post_many(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		/* As programs have to: never more outstanding than the completion queue holds. */
		int mine = __atomic_add_fetch(&posted, 1, __ATOMIC_SEQ_CST);
		while (mine - __atomic_load_n(&completions, __ATOMIC_SEQ_CST) > 60)
			usleep(10);
		while (post(&shared.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, &shared.b, 0) == ENOMEM)
			usleep(10);
	}
	return NULL;
}

CASE("life.threads-on-one-queue-pair")
{
	pthread_t thread[THREADS];
	struct ibv_wc wc;
	double end = now() + 20;

	pair_up(&shared, (struct wish){});
	for (int i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, post_many, NULL) == 0);
	while (completions < THREADS * ROUNDS && now() < end)
		if (ibv_poll_cq(shared.a.scq, 1, &wc) == 1) {
			if (wc.status != IBV_WC_SUCCESS)
				break;
			__atomic_add_fetch(&completions, 1, __ATOMIC_SEQ_CST);
		}
	EQ(completions, THREADS * ROUNDS);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(quiet(shared.a.scq));
	pair_down(&shared);
}

static int descriptors(void)
{
	int count = 0;
	DIR *dir = opendir("/proc/self/fd");

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static int threads_running(void)
{
	int count = 0;
	DIR *dir = opendir("/proc/self/task");

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static long resident(void)
{
	long pages = 0, own = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	NEED(file && fscanf(file, "%ld %ld", &pages, &own) == 2);
	fclose(file);
	return own * 4;
}

CASE("life.three-hundred-connections-leave-nothing-behind")
{
	for (int i = 0; i < 50; i++) {
		pair_up(&p, (struct wish){});
		pair_down(&p);
	}
	int fds = descriptors(), running = threads_running();
	long memory = resident();
	for (int i = 0; i < 300; i++) {
		pair_up(&p, (struct wish){});
		if (i % 2)
			EQ(rdma_disconnect(p.a.id), 0);
		pair_down(&p);
	}
	/* Connections that are still saying good-bye hold theirs a little longer. */
	for (int i = 0; i < 500 && descriptors() > fds; i++)
		sleep_ms(10);
	CHECK(descriptors() <= fds);
	EQ(threads_running(), running);
	long grown = resident() - memory;
	CHECKF(grown < 4096, "grown by %ld KiB", grown);
}

/* run.sh has WEFT_RECEIVE_WAIT_MS short. */
CASE("life.a-message-that-no-receive-waits-for-ends-the-connection")
{
	pair_up(&p, (struct wish){});
	EQ(send_of(&p.a, 2, 0, 0, 64), 0);
	expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	pair_down(&p);
}
