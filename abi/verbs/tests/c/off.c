/* WEFT_OFF=1: with the libraries loaded, a program finds what it would find without them. */
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "check.h"

typedef struct ibv_device **get_list(int *);
typedef struct rdma_event_channel *create_channel(void);

/* The installed library's function; NULL where ours stand in its place. */
static void *installed(const char *library, const char *function)
{
	const char *mode = getenv("TEST_MODE");

	if (!mode || strcmp(mode, "preload"))
		return NULL;
	void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	return handle ? dlsym(handle, function) : NULL;
}

static void the_list(void)
{
	get_list *theirs = (get_list *)installed("libibverbs.so.1", "ibv_get_device_list");
	int count = 0, wanted = 0;

	begin_case("weft0 is not listed");
	errno = 0;
	struct ibv_device **wanted_list = theirs ? theirs(&wanted) : NULL;
	int wanted_errno = errno;
	errno = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (theirs) {
		EQUAL(errno, wanted_errno);
		EQUAL(!list, !wanted_list);
	} else {
		CHECK(list && !list[0]);
	}
	EQUAL(count, wanted);
	for (int i = 0; list && list[i]; i++)
		CHECK(strcmp(ibv_get_device_name(list[i]), "weft0"));
	if (list)
		ibv_free_device_list(list);
	if (wanted_list)
		ibv_free_device_list(wanted_list);
}

static void the_connection_manager(void)
{
	create_channel *theirs = (create_channel *)installed("librdmacm.so.1", "rdma_create_event_channel");
	struct rdma_cm_id *id = NULL;

	begin_case("the connection manager is the machine's own");
	errno = 0;
	struct rdma_event_channel *wanted = theirs ? theirs() : NULL;
	int wanted_errno = theirs ? errno : ENODEV;
	errno = 0;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	EQUAL(!channel, !wanted);
	if (!channel) {
		EQUAL(errno, wanted_errno);
		EQUAL(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), -1);
	} else {
		rdma_destroy_event_channel(channel);
	}
	if (wanted)
		rdma_destroy_event_channel(wanted);
}

static void the_files(void)
{
	struct stat about;

	begin_case("the device has no files");
	MINUS_ONE(stat("/dev/infiniband/weft0", &about), ENOENT);
	MINUS_ONE(access("/sys/class/infiniband/weft0/node_guid", R_OK), ENOENT);
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

int main(void)
{
	if (!getenv("WEFT_OFF")) {
		skip_case("off", "WEFT_OFF is not set");
		end_program();
	}
	the_list();
	the_connection_manager();
	the_files();

	begin_case("nothing runs and nothing is open");
	EQUAL(entries("/proc/self/task"), 1);
	/* Standard streams, and the one that lists. */
	for (int fd = 3; fd < 64; fd++) {
		char link[64], target[256] = "";
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		CHECK(readlink(link, target, sizeof(target) - 1) < 0 || !strstr(target, "weft"));
	}

	begin_case("words are words");
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter"));
	end_program();
}
