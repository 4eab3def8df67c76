/* The list of cases, the processes they run in, and what is said of them. */
#include "cases.h"

#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

enum { MESSAGE = 1500, WIDTH_MAX = 32 };

/* Written by the case's processes and threads, read by the list's. */
struct report {
	int checks, failures, skipped;
	char message[MESSAGE];
};

enum outcome { PASSED, FAILED, SKIPPED, KNOWN };

struct entry {
	char *name;
	const char *file;
	int line;
	case_function run;
	long argument;
	/* Of a run. */
	const char *known; /* why it is known to fail, or NULL */
	struct report *report;
	pid_t pid;
	double started;
	bool done;
	enum outcome outcome;
	char *first; /* how it failed at first, if it was run again */
};

static struct entry *entries;
static size_t entry_count, entry_room;

static struct {
	bool list, tap, quiet, again;
	const char *known;
	regex_t only, without;
	bool has_only, has_without;
	int width;
	double limit;
} options = {.width = 4, .limit = 60};

const char *case_name;
bool case_storm;
/* Where no case runs (a program that a case has started anew), checks count here and nobody reads them. */
static struct report of_no_case;
static struct report *current = &of_no_case;
static const struct program *the_program;

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int patience = 15000;

double deadline(void)
{
	return now() + patience / 1e3;
}

void sleep_ms(int ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
}

void case_add(const char *file, int line, case_function run, long argument, const char *format, ...)
{
	va_list words;

	if (entry_count == entry_room) {
		entry_room = entry_room ? 2 * entry_room : 256;
		entries = realloc(entries, entry_room * sizeof(*entries));
		if (!entries)
			abort();
	}
	struct entry *entry = &entries[entry_count++];
	*entry = (struct entry){.file = file, .line = line, .run = run, .argument = argument};
	va_start(words, format);
	if (vasprintf(&entry->name, format, words) < 0)
		abort();
	va_end(words);
}

/* --- inside a case */

bool case_check(bool good, const char *file, int line, const char *what, ...)
{
	__atomic_add_fetch(&current->checks, 1, __ATOMIC_RELAXED);
	if (good)
		return true;
	/* The first failure is told on the case's line, the others on standard error. */
	bool first = __atomic_fetch_add(&current->failures, 1, __ATOMIC_RELAXED) == 0;
	const char *slash = strrchr(file, '/');
	char text[MESSAGE];
	va_list words;
	va_start(words, what);
	int used = snprintf(text, sizeof(text), "%s:%d: ", slash ? slash + 1 : file, line);
	vsnprintf(text + used, sizeof(text) - (size_t)used, what, words);
	va_end(words);
	if (first)
		strcpy(current->message, text);
	else
		dprintf(STDERR_FILENO, "%s: %s\n", case_name, text);
	return false;
}

_Noreturn void case_end(void)
{
	exit(0);
}

_Noreturn void case_skip(const char *why, ...)
{
	va_list words;

	va_start(words, why);
	if (!current->failures)
		vsnprintf(current->message, sizeof(current->message), why, words);
	va_end(words);
	__atomic_store_n(&current->skipped, 1, __ATOMIC_RELEASE);
	case_end();
}

static void on_storm(int signal)
{
	(void)signal;
}

static void start_storm(void)
{
	struct sigaction action = {.sa_handler = on_storm, .sa_flags = SA_RESTART};
	/* Cases and their timers stay apart: the storm's own signal and timer. */
	unsigned seed = 0;
	for (const char *at = case_name; *at; at++)
		seed = seed * 31 + (unsigned char)*at;
	suseconds_t period = 50 + (suseconds_t)(seed % 150);
	struct itimerval timer = {.it_interval = {0, period}, .it_value = {0, period}};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

_Noreturn static void run_here(struct entry *entry)
{
	struct rlimit no_core = {0, 0};

	setpgid(0, 0);
	setrlimit(RLIMIT_CORE, &no_core);
	case_name = entry->name;
	current = entry->report;
	if (the_program->before)
		the_program->before();
	/* What was looked at so far was not the case's. */
	current->checks = 0;
	if (case_storm)
		start_storm();
	entry->run(entry->argument);
	case_end();
}

/* --- the run */

static void start(struct entry *entry)
{
	entry->report = mmap(NULL, sizeof(*entry->report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (entry->report == MAP_FAILED)
		abort();
	fflush(NULL);
	entry->started = now();
	entry->pid = fork();
	if (entry->pid < 0)
		abort();
	if (entry->pid == 0)
		run_here(entry);
	setpgid(entry->pid, entry->pid);
}

static void add_reason(struct report *report, const char *format, ...)
{
	size_t used = strlen(report->message);
	va_list words;

	if (used && used + 4 < MESSAGE) {
		strcat(report->message, "; ");
		used += 2;
	}
	va_start(words, format);
	vsnprintf(report->message + used, MESSAGE - used, format, words);
	va_end(words);
}

static void judge(struct entry *entry, int status, bool late)
{
	struct report *report = entry->report;
	bool failed = report->failures > 0;

	if (late) {
		add_reason(report, "did not end within %g s", options.limit);
		failed = true;
	} else if (WIFSIGNALED(status)) {
		add_reason(report, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
		failed = true;
	} else if (WEXITSTATUS(status) != 0) {
		add_reason(report, "exit status %d", WEXITSTATUS(status));
		failed = true;
	} else if (!report->skipped && report->checks == 0) {
		add_reason(report, "checked nothing");
		failed = true;
	}
	entry->outcome = failed ? FAILED : report->skipped ? SKIPPED : PASSED;
	if (entry->known && entry->outcome == FAILED) {
		entry->outcome = KNOWN;
	} else if (entry->known && entry->outcome == PASSED) {
		add_reason(report, "is listed as known to fail (%s), and passes", entry->known);
		entry->outcome = FAILED;
	}
	/* One line each. */
	for (char *at = report->message; *at; at++)
		if (*at == '\n')
			*at = ' ';
	entry->done = true;
}

static void print_plain(const struct entry *entry)
{
	const char *message = entry->report->message;

	if (entry->first && entry->outcome != FAILED) {
		printf("flaky %s: %s\n", entry->name, entry->first);
		return;
	}
	if (options.quiet && (entry->outcome == PASSED || entry->outcome == SKIPPED))
		return;
	switch (entry->outcome) {
	case PASSED:
		printf("ok %s\n", entry->name);
		break;
	case FAILED:
		printf("FAIL %s: %s%s%s\n", entry->name, message, entry->first ? "; before that: " : "",
		       entry->first ? entry->first : "");
		break;
	case SKIPPED:
		printf("skip %s: %s\n", entry->name, message);
		break;
	case KNOWN:
		printf("known %s: %s [%s]\n", entry->name, entry->known, message);
		break;
	}
}

static void print_tap(const struct entry *entry, size_t number)
{
	const char *message = entry->report->message;

	switch (entry->outcome) {
	case PASSED:
		printf("ok %zu - %s\n", number, entry->name);
		break;
	case FAILED:
		printf("not ok %zu - %s\n  ---\n  message: |\n    %s\n  ...\n", number, entry->name, message);
		break;
	case SKIPPED:
		printf("ok %zu - %s # SKIP %s\n", number, entry->name, message);
		break;
	case KNOWN:
		printf("not ok %zu - %s # TODO %s\n", number, entry->name, entry->known);
		break;
	}
}

/* How many of the cases were skipped for each reason: nothing is left out silently. */
static void print_reasons(struct entry **chosen, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (chosen[i]->outcome != SKIPPED)
			continue;
		const char *reason = chosen[i]->report->message;
		size_t same = 0, before = 0;
		for (size_t j = 0; j < count; j++) {
			if (chosen[j]->outcome != SKIPPED || strcmp(chosen[j]->report->message, reason) != 0)
				continue;
			same++;
			before += j < i;
		}
		if (!before)
			printf("skipped %zu: %s\n", same, reason);
	}
}

/* Ends what has run too long, and notes what ended. How many of the cases from `first` up to `next` ended. */
static size_t gather(struct entry **chosen, size_t first, size_t next)
{
	size_t ended = 0;
	int status;
	pid_t pid = waitpid(-1, &status, WNOHANG);

	for (size_t i = first; i < next; i++) {
		struct entry *entry = chosen[i];
		bool late = !entry->done && now() - entry->started > options.limit;
		if (entry->done || (entry->pid != pid && !late))
			continue;
		/* With all that it started. */
		kill(-entry->pid, SIGKILL);
		if (entry->pid != pid)
			waitpid(entry->pid, &status, 0);
		judge(entry, status, late && entry->pid != pid);
		ended++;
	}
	if (pid == 0)
		poll(NULL, 0, 1);
	return ended;
}

static void print(const struct entry *entry, size_t number)
{
	if (options.tap)
		print_tap(entry, number);
	else
		print_plain(entry);
	fflush(stdout);
}

/* Sends a signal to the process group that `scripts/test` has at work beside the cases, if it has one: TESTS_BESIDE
   names it (tests/rig/again.py). */
static void send_beside(int signal_number)
{
	const char *named = getenv("TESTS_BESIDE");
	long group = named ? strtol(named, NULL, 10) : 0;

	if (group > 1)
		kill((pid_t)-group, signal_number);
}

/* A case that failed beside others runs once more, alone: on a machine that stands still for a second anything that has
   a time limit can fail. */
static void run_again(struct entry *entry)
{
	entry->first = strdup(entry->report->message);
	munmap(entry->report, sizeof(*entry->report));
	entry->done = false;
	send_beside(SIGSTOP);
	start(entry);
	while (!gather(&entry, 0, 1))
		;
	send_beside(SIGCONT);
}

static int run_all(struct entry **chosen, size_t count)
{
	size_t next = 0, printed = 0, running = 0, counts[4] = {0};

	if (options.tap)
		printf("TAP version 14\n1..%zu\n", count);
	while (printed < count) {
		while (next < count && running < (size_t)options.width) {
			start(chosen[next++]);
			running++;
		}
		running -= gather(chosen, printed, next);
		while (printed < next && chosen[printed]->done) {
			struct entry *entry = chosen[printed++];
			if (!options.again || entry->outcome != FAILED)
				print(entry, printed);
		}
	}
	for (size_t i = 0; i < count; i++) {
		if (options.again && chosen[i]->outcome == FAILED) {
			run_again(chosen[i]);
			print(chosen[i], i + 1);
		}
		counts[chosen[i]->outcome]++;
	}
	if (!options.tap) {
		print_reasons(chosen, count);
		if (counts[KNOWN])
			printf("skipped %zu: known to fail, with reasons in %s\n", counts[KNOWN], options.known);
		printf("%zu passed, %zu failed, %zu skipped\n", counts[PASSED], counts[FAILED],
		       counts[SKIPPED] + counts[KNOWN]);
	}
	return counts[FAILED] ? 1 : 0;
}

/* --- the command line */

static int by_place(const void *a, const void *b)
{
	const struct entry *one = a, *other = b;
	int order = strcmp(one->file, other->file);

	if (order == 0)
		order = one->line - other->line;
	return order ? order : one < other ? -1 : 1;
}

_Noreturn static void wrong(const char *format, ...)
{
	va_list words;

	fprintf(stderr, "%s: ", the_program->name);
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fputc('\n', stderr);
	exit(2);
}

/* A line of the file is a case's name and, after blanks, why it fails; # begins a comment. */
static void read_known(void)
{
	FILE *file = fopen(options.known, "r");
	char line[1000];

	if (!file)
		wrong("%s: %s", options.known, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		if (line[0] == '#' || line[0] == 0)
			continue;
		size_t length = strcspn(line, " \t");
		const char *reason = line + length + strspn(line + length, " \t");
		struct entry *found = NULL;
		line[length] = 0;
		for (size_t i = 0; i < entry_count; i++)
			if (strcmp(entries[i].name, line) == 0)
				found = &entries[i];
		if (!found)
			wrong("%s: there is no case %s; take the line out", options.known, line);
		if (!*reason)
			wrong("%s: %s has no reason; write one behind the name", options.known, line);
		found->known = strdup(reason);
	}
	fclose(file);
}

static void check_names(void)
{
	for (size_t i = 0; i < entry_count; i++) {
		if (strpbrk(entries[i].name, " \t#"))
			wrong("case %s: a name has no blanks and no #", entries[i].name);
		for (size_t j = 0; j < i; j++)
			if (strcmp(entries[i].name, entries[j].name) == 0)
				wrong("two cases have the name %s", entries[i].name);
	}
}

static void take_regex(regex_t *regex, bool *set, const char *text)
{
	if (regcomp(regex, text, REG_EXTENDED | REG_NOSUB) != 0)
		wrong("%s is no extended regular expression", text);
	*set = true;
}

static void usage(void)
{
	printf("Usage: %s [OPTION]...\n\n"
	       "  --list            the names of the cases, and nothing else\n"
	       "  --only REGEX      cases whose names match\n"
	       "  --without REGEX   cases whose names do not\n"
	       "  --known FILE      cases that are known to fail: one a line, with a reason; one that passes fails the run\n"
	       "  --tap             TAP version 14\n"
	       "  --quiet           only what failed, and the counts\n"
	       "  --again           run what failed once more, alone; what passes then is said to be flaky, and counts as passed\n"
	       "  --storm           a timer's signal every 50 to 200 microseconds while a case runs\n"
	       "  --width N         cases at a time (%d)\n"
	       "  --limit SECONDS   for each case (%g)\n"
	       "  --patience SECONDS  for each thing that a case waits for (%g)\n"
	       "%s\n"
	       "Exit status: 0 nothing failed, 1 something did, 2 the command line is wrong.\n",
	       the_program->name, options.width, options.limit, patience / 1e3, the_program->usage ? the_program->usage : "");
}

static void read_options(int argc, char **argv)
{
	struct option longs[32] = {
		{"list", no_argument, NULL, 1},	      {"only", required_argument, NULL, 2},
		{"without", required_argument, NULL, 3}, {"known", required_argument, NULL, 4},
		{"tap", no_argument, NULL, 5},	      {"quiet", no_argument, NULL, 6},
		{"storm", no_argument, NULL, 7},      {"width", required_argument, NULL, 8},
		{"limit", required_argument, NULL, 9}, {"help", no_argument, NULL, 10},
		{"patience", required_argument, NULL, 11}, {"again", no_argument, NULL, 12},
	};
	int option, at = 12;

	for (const struct option *more = the_program->longs; more && more->name; more++)
		longs[at++] = *more;

	while ((option = getopt_long(argc, argv, the_program->options ? the_program->options : "", longs, NULL)) !=
	       -1) {
		switch (option) {
		case 1: options.list = true; break;
		case 2: take_regex(&options.only, &options.has_only, optarg); break;
		case 3: take_regex(&options.without, &options.has_without, optarg); break;
		case 4: options.known = optarg; break;
		case 5: options.tap = true; break;
		case 6: options.quiet = true; break;
		case 7: case_storm = true; break;
		case 8: options.width = atoi(optarg); break;
		case 9: options.limit = atof(optarg); break;
		case 10: usage(); exit(0);
		case 11: patience = (int)(1e3 * atof(optarg)); break;
		case 12: options.again = true; break;
		case '?': exit(2);
		default: the_program->option(option, optarg);
		}
	}
	if (optind < argc)
		wrong("%s is not an option (see --help)", argv[optind]);
	if (options.width < 1 || options.width > WIDTH_MAX)
		wrong("--width is 1 to %d", WIDTH_MAX);
	if (patience <= 0)
		wrong("--patience is a number of seconds above 0");
	if (options.limit <= 0)
		wrong("--limit is a number of seconds above 0");
}

int cases_main(int argc, char **argv, const struct program *program)
{
	the_program = program;
	read_options(argc, argv);
	qsort(entries, entry_count, sizeof(*entries), by_place);
	check_names();
	if (options.known)
		read_known();
	/* Static: a case that leaves from within has it in sight, and leaks nothing. */
	static struct entry **chosen;
	chosen = calloc(entry_count + 1, sizeof(*chosen));
	size_t count = 0;
	for (size_t i = 0; i < entry_count; i++) {
		const char *name = entries[i].name;
		if (options.has_only && regexec(&options.only, name, 0, NULL, 0) != 0)
			continue;
		if (options.has_without && regexec(&options.without, name, 0, NULL, 0) == 0)
			continue;
		chosen[count++] = &entries[i];
	}
	if (options.list) {
		for (size_t i = 0; i < count; i++)
			puts(chosen[i]->name);
		return 0;
	}
	if (count == 0)
		wrong("no case has such a name (see --list)");
	return run_all(chosen, count);
}
