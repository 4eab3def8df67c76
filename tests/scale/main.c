/*
 * Echo over many connections at once, with every octet looked at, on both sides.
 *
 *     crowd [--server] [--by cm|gid|sockets] [--address A] [--port P] [--count N] [--window W] [--size OCTETS]
 *
 * The client does what its standard input says, a command a line, and answers each with a line of JSON:
 *
 *     connect                             all connections at once
 *     echo OCTETS WINDOW SECONDS [FLAGS]  traffic on all connections, WINDOW messages under way on each
 *     turns OCTETS SECONDS [FLAGS]        one message at a time, each on the next connection
 *
 * FLAGS: 1 sleep instead of spinning, 2 an RDMA Write as long as the message goes ahead of each message. The server
 * says what it is ready for, answers every message with one of the same length, and ends with its standard input.
 */
#include "crowd.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct options options = {.address = "127.0.0.1", .port = 18500, .count = 1, .window = 1, .size = 16384};
static const struct carrier *carrier;

/* --- the server */

static _Atomic uint64_t answered, wrong;
static bool asleep;

static void answer(uint32_t connection, const uint8_t *at)
{
	struct header h;

	memcpy(&h, at, sizeof(h));
	if (h.connection != connection || !message_right(at, &h, ASK))
		wrong++;
	asleep = h.flags & SLEEP;
	message_fill(carrier->buffer(connection, h.number), &h, ANSWER);
	carrier->send(connection, &h);
	answered++;
}

static void *until_input_ends(void *unused)
{
	char octet;

	while (read(0, &octet, 1) > 0)
		;
	say("{\"answered\": %llu, \"wrong\": %llu, \"resident\": %llu}", (unsigned long long)answered,
	    (unsigned long long)wrong, (unsigned long long)resident());
	_exit(wrong ? 1 : 0);
	return unused;
}

static _Noreturn void serve(void)
{
	pthread_t watcher;

	carrier->listen();
	MUST(pthread_create(&watcher, NULL, until_input_ends, NULL) == 0, "thread");
	say("{\"listening\": %u, \"resident\": %llu}", options.port, (unsigned long long)resident());
	carrier->accept();
	say("{\"accepted\": %u, \"resident\": %llu}", options.count, (unsigned long long)resident());
	for (;;)
		carrier->receive(asleep, answer);
}

/* --- the client */

/* One measurement. */
static struct {
	struct header h;
	bool in_turns;
	uint64_t end;
	uint64_t under_way, answers;
	struct meter times;
} run;
/* Of each connection: messages sent and answered, and when those under way were sent. */
static uint32_t *sent, *got;
static uint64_t *sent_at;

static void ask(uint32_t connection)
{
	struct header h = run.h;

	h.connection = connection;
	h.number = sent[connection]++;
	message_fill(carrier->buffer(connection, h.number), &h, ASK);
	sent_at[connection * options.window + h.number % options.window] = now_ns();
	run.under_way++;
	carrier->send(connection, &h);
}

static void answered_by(uint32_t connection, const uint8_t *at)
{
	struct header h = run.h;

	h.connection = connection;
	h.number = got[connection]++;
	MUST(memcmp(at, &h, sizeof(h)) == 0 && message_right(at, &h, ANSWER),
	     "connection %u: message %u came back wrong", connection, h.number);
	uint64_t now = now_ns();
	meter_add(&run.times, now - sent_at[connection * options.window + h.number % options.window]);
	run.answers++;
	run.under_way--;
	if (now < run.end)
		ask(run.in_turns ? (connection + 1) % options.count : connection);
}

static void measure(uint32_t size, uint32_t window, double seconds, uint32_t flags)
{
	MUST(size >= sizeof(struct header) && size <= options.size && window <= options.window, "size or window");
	memset(&run, 0, sizeof(run));
	run.h = (struct header){.size = size, .flags = flags};
	run.in_turns = window == 0;
	uint64_t start = now_ns();
	run.end = start + (uint64_t)(seconds * 1e9);
	if (run.in_turns)
		ask(0);
	for (uint32_t turn = 0; turn < window; turn++)
		for (uint32_t i = 0; i < options.count; i++)
			ask(i);
	while (run.under_way)
		carrier->receive(flags & SLEEP, answered_by);
	double took = (double)(now_ns() - start) / 1e9;
	uint32_t least = UINT32_MAX;
	for (uint32_t i = 0; i < options.count; i++)
		least = got[i] < least ? got[i] : least;
	say("{\"answers\": %llu, \"seconds\": %.3f, \"rate\": %.1f, \"median_us\": %.2f, \"p99_us\": %.2f, "
	    "\"least_of_a_connection\": %u, \"resident\": %llu}",
	    (unsigned long long)run.answers, took, (double)run.answers / took, meter_quantile(&run.times, 0.5) / 1e3,
	    meter_quantile(&run.times, 0.99) / 1e3, least, (unsigned long long)resident());
}

static void connect_all(void)
{
	uint64_t *each = room(options.count * sizeof(*each)), all = 0, start = now_ns();
	struct meter *times = room(sizeof(*times));

	carrier->prepare();
	uint64_t prepared = now_ns(), before = resident();
	carrier->connect(each, &all);
	for (uint32_t i = 0; i < options.count; i++)
		meter_add(times, each[i]);
	say("{\"connected\": %u, \"prepare_us\": %.1f, \"all_us\": %.1f, \"median_us\": %.1f, \"p99_us\": %.1f, "
	    "\"prepared_resident\": %llu, \"resident\": %llu}",
	    options.count, (double)(prepared - start) / 1e3, (double)all / 1e3, meter_quantile(times, 0.5) / 1e3,
	    meter_quantile(times, 0.99) / 1e3, (unsigned long long)before, (unsigned long long)resident());
}

static void obey(void)
{
	char line[256];

	sent = room(options.count * sizeof(*sent));
	got = room(options.count * sizeof(*got));
	sent_at = room((size_t)options.count * options.window * sizeof(*sent_at));
	say("{\"ready\": true, \"resident\": %llu}", (unsigned long long)resident());
	while (fgets(line, sizeof(line), stdin)) {
		uint32_t size, window, flags = 0;
		double seconds;

		if (strcmp(line, "connect\n") == 0)
			connect_all();
		else if (sscanf(line, "echo %u %u %lf %u", &size, &window, &seconds, &flags) >= 3)
			measure(size, window, seconds, flags);
		else if (sscanf(line, "turns %u %lf %u", &size, &seconds, &flags) >= 2)
			measure(size, 0, seconds, flags);
		else
			die("no such command: %s", line);
	}
	_exit(0);
}

/* --- the command line */

static enum by by_name(const char *name)
{
	static const char *const names[] = {[BY_CM] = "cm", [BY_GID] = "gid", [BY_SOCKETS] = "sockets"};

	for (enum by by = BY_CM; by <= BY_SOCKETS; by++)
		if (strcmp(name, names[by]) == 0)
			return by;
	die("--by cm, gid or sockets");
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"server", no_argument, NULL, 's'},	   {"by", required_argument, NULL, 'b'},
		{"address", required_argument, NULL, 'a'}, {"port", required_argument, NULL, 'p'},
		{"count", required_argument, NULL, 'n'},   {"window", required_argument, NULL, 'w'},
		{"size", required_argument, NULL, 'z'},	   {},
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (letter) {
		case 's': options.server = true; break;
		case 'b': options.by = by_name(optarg); break;
		case 'a': options.address = optarg; break;
		case 'p': options.port = (uint16_t)atoi(optarg); break;
		case 'n': options.count = (uint32_t)atoi(optarg); break;
		case 'w': options.window = (uint32_t)atoi(optarg); break;
		case 'z': options.size = (uint32_t)atoi(optarg); break;
		default: return 2;
		}
	}
	MUST(options.count && options.window, "--count and --window are at least 1");
	carrier = options.by == BY_SOCKETS ? &sockets : &queue_pairs;
	if (options.server)
		serve();
	obey();
}
