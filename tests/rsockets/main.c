/*
 * Whether rsocket(7) is what its man page says, and beyond that what sockets are: two ends of one process or two, in
 * small cases.
 */
#include "env.h"

static void before(void)
{
	/* Without an address of its own a signal that is raised ends the case: rsockets raise none. */
	signal(SIGPIPE, SIG_DFL);
}

int main(int argc, char **argv)
{
	static const struct program program = {.name = "rsockets-conformance", .before = before};

	return cases_main(argc, argv, &program);
}
