/* The cases of the C edge: how programs meet the libraries, however they are loaded. What the device does is asked in
   tests/verbs. */
#include "edge.h"

int main(int argc, char **argv)
{
	static const struct program program = {.name = "edge", .before = env_open};

	return cases_main(argc, argv, &program);
}
