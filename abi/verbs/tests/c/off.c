/* WEFT_OFF=1: with the libraries loaded, a program finds what it would find without them. */
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include "../../../../tests/common/cases.h"
#include "said.h"

typedef struct ibv_device **get_list(int *);
typedef struct rdma_event_channel *create_channel(void);

/* The installed library's function; NULL where ours stand in its place. */
static void *installed(const char *library, const char *function)
{
	const char *mode = getenv("TEST_MODE");

	if (!mode || strcmp(mode, "preload") != 0)
		return NULL;
	void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	return handle ? dlsym(handle, function) : NULL;
}

CASE("off.weft0-is-not-listed")
{
	get_list *theirs = (get_list *)installed("libibverbs.so.1", "ibv_get_device_list");
	int count = 0, wanted = 0;

	errno = 0;
	struct ibv_device **wanted_list = theirs ? theirs(&wanted) : NULL;
	int wanted_errno = errno;
	errno = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (theirs) {
		EQ(errno, wanted_errno);
		EQ(!list, !wanted_list);
	} else {
		CHECK(list && !list[0]);
	}
	EQ(count, wanted);
	for (int i = 0; list && list[i]; i++)
		CHECK(strcmp(ibv_get_device_name(list[i]), "weft0"));
	if (list)
		ibv_free_device_list(list);
	if (wanted_list)
		ibv_free_device_list(wanted_list);
}

CASE("off.the-connection-manager-is-the-machines-own")
{
	create_channel *theirs = (create_channel *)installed("librdmacm.so.1", "rdma_create_event_channel");
	struct rdma_cm_id *id = NULL;

	errno = 0;
	struct rdma_event_channel *wanted = theirs ? theirs() : NULL;
	int wanted_errno = theirs ? errno : ENODEV;
	errno = 0;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	EQ(!channel, !wanted);
	if (!channel) {
		EQ(errno, wanted_errno);
		EQ(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), -1);
	} else {
		rdma_destroy_event_channel(channel);
	}
	if (wanted)
		rdma_destroy_event_channel(wanted);
}

CASE("off.rsockets-are-the-machines-own")
{
	int (*theirs)(int, int, int) = installed("librdmacm.so.1", "rsocket");

	errno = 0;
	int wanted = theirs ? theirs(AF_INET, SOCK_STREAM, 0) : -1;
	int wanted_errno = theirs ? errno : ENODEV;
	errno = 0;
	EQ(rsocket(AF_INET, SOCK_STREAM, 0) < 0, wanted < 0);
	if (wanted < 0)
		EQ(errno, wanted_errno);
}

CASE("off.the-device-has-no-files")
{
	struct stat about;

	FAILS(stat("/dev/infiniband/weft0", &about), ENOENT);
	FAILS(access("/sys/class/infiniband/weft0/node_guid", R_OK), ENOENT);
	CHECK(opendir("/sys/class/infiniband/weft0") == NULL);
}

static int entries(const char *folder)
{
	int count = 0;
	DIR *stream = opendir(folder);

	NEED(stream);
	while (readdir(stream))
		count++;
	closedir(stream);
	return count - 2;
}

CASE("off.nothing-runs-and-nothing-is-open")
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	EQ(entries("/proc/self/task"), 1);
	/* Standard streams, and the one that lists. */
	for (int fd = 3; fd < 64; fd++) {
		char link[64], target[256] = "";
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		CHECK(readlink(link, target, sizeof(target) - 1) < 0 || !strstr(target, "memfd:weft"));
	}
	if (list)
		ibv_free_device_list(list);
}

CASE("off.words-are-words")
{
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter"));
}

CASE("off.that-it-is-off-is-said-once")
{
	listen_to_stderr();
	for (int i = 0; i < 2; i++) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		if (list)
			ibv_free_device_list(list);
	}
	EQ(lines_said("Weft is off \\(WEFT_OFF\\)"), 1);
}

int main(int argc, char **argv)
{
	static const struct program program = {.name = "off"};

	return cases_main(argc, argv, &program);
}
