/*
 * How sockets behave, in hundreds of small cases: what the man pages say and what Linux does. The expectations are the
 * plain kernel's; what stands between a program and the kernel has to keep every one of them.
 */
#include "env.h"
#include "inherited.h"

static void before(void)
{
	/* What a write to a closed peer does is asked by the cases that mean it. */
	signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
	static const struct program program = {.name = "sockets-conformance", .before = before};

	if (argc > 1 && strcmp(argv[1], "--inherited") == 0)
		return inherited_main(argc, argv);
	return cases_main(argc, argv, &program);
}
