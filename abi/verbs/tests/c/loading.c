/* However the libraries are reached, there is one engine. Linked with neither of them. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../../../../tests/common/cases.h"
#include "said.h"

static void *verbs, *cm;

/* Opens both libraries by name; in preload mode the installed ones are behind those names. */
static void open_both(void)
{
	const char *mode = getenv("TEST_MODE");

	if (!mode || strcmp(mode, "preload") == 0)
		SKIP("the installed libraries are behind those names");
	NEED(verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL));
	NEED(cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL));
}

/* A list of the device by libibverbs and one by librdmacm: both are in use then. */
static void use_both(void ****from_verbs, void ****from_cm)
{
	void ***(*list)(int *) = (void *)dlsym(verbs, "ibv_get_device_list");
	void ***(*devices)(int *) = (void *)dlsym(cm, "rdma_get_devices");
	int count = 0;

	NEED(list && devices);
	*from_verbs = list(&count);
	EQ(count, 1);
	*from_cm = devices(NULL);
	NEED(*from_verbs && *from_cm);
}

/* Files of this name that are mapped, each counted once. */
static int mapped(const char *name)
{
	char line[4096], last[4096] = "";
	int count = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	NEED(maps);
	while (fgets(line, sizeof(line), maps)) {
		char *path = strchr(line, '/');
		char *base = path ? strrchr(path, '/') + 1 : NULL;
		if (!base)
			continue;
		base[strcspn(base, "\n")] = 0;
		if (!strcmp(base, name) && strcmp(path, last)) {
			count++;
			strcpy(last, path);
		}
	}
	fclose(maps);
	return count;
}

/* Descriptors of this process that lead to something of this name. */
static int descriptors(const char *name)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++) {
		char link[64], target[256];
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		ssize_t length = readlink(link, target, sizeof(target) - 1);
		if (length <= 0)
			continue;
		target[length] = 0;
		count += strstr(target, name) != NULL;
	}
	return count;
}

CASE("loading.both-libraries-name-the-same-device")
{
	void ***from_verbs, ***from_cm;
	int count = 0;

	open_both();
	use_both(&from_verbs, &from_cm);
	/* A context begins with the address of its device. */
	CHECK(from_cm[0][0] == from_verbs[0]);
	void ***(*preloaded)(int *) = (void *)dlsym(RTLD_DEFAULT, "ibv_get_device_list");
	if (preloaded) {
		void ***again = preloaded(&count);
		EQ(count, 1);
		CHECK(again[0] == from_verbs[0]);
	}
}

CASE("loading.each-library-is-there-once")
{
	void ***from_verbs, ***from_cm;

	open_both();
	use_both(&from_verbs, &from_cm);
	EQ(mapped("libweft.so"), 1);
	EQ(mapped("libibverbs.so.1"), 1);
	EQ(mapped("librdmacm.so.1"), 1);
}

CASE("loading.there-is-one-engine")
{
	void ***from_verbs, ***from_cm;

	open_both();
	use_both(&from_verbs, &from_cm);
	EQ(descriptors("memfd:weft-stat"), 1);
}

/* A handle of the copy of libweft.so that this process is served by; NULL where it is not loaded. */
static void *serving(char *path, size_t size)
{
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");

	NEED(maps);
	while (fgets(line, sizeof(line), maps)) {
		char *name = strchr(line, '/');
		if (!name || !strstr(name, "/libweft.so\n"))
			continue;
		name[strcspn(name, "\n")] = 0;
		snprintf(path, size, "%s", name);
		fclose(maps);
		return dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	}
	fclose(maps);
	return NULL;
}

/* A copy of the file, loaded beside it as another build under another path is. */
static void *load_copy(const char *path, char *folder)
{
	char copy[256];
	struct stat about;

	NEED(mkdtemp(folder));
	snprintf(copy, sizeof(copy), "%s/libweft.so", folder);
	int from = open(path, O_RDONLY), to = open(copy, O_WRONLY | O_CREAT, 0700);
	NEED(from >= 0 && to >= 0 && fstat(from, &about) == 0);
	for (off_t left = about.st_size; left > 0;) {
		ssize_t octets = sendfile(to, from, NULL, left);
		NEED(octets > 0);
		left -= octets;
	}
	close(from);
	close(to);
	void *handle = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
	unlink(copy);
	rmdir(folder);
	return handle;
}

typedef void **get_list(int *);
typedef void *open_device(void *);

static void *open_first(void *library)
{
	get_list *list = (get_list *)dlsym(library, "ibv_get_device_list");
	open_device *open = (open_device *)dlsym(library, "ibv_open_device");
	int count = 0;

	NEED(list && open);
	void **devices = list(&count);
	NEED(devices && count == 1);
	return open(devices[0]);
}

CASE("loading.a-second-copy-of-the-library-stays-out-of-service")
{
	const char *mode = getenv("TEST_MODE");
	char path[4096], folder[] = "/tmp/weft-copy-XXXXXX";

	if (mode && strcmp(mode, "replacement") == 0)
		open_both();
	void *first = serving(path, sizeof(path));
	NEED(first);
	void *second = load_copy(path, folder);
	NEED(second && second != first);
	CHECK(open_first(first));
	listen_to_stderr();
	NONE(open_first(second), EBUSY);
	void *(*channel)(void) = (void *)dlsym(second, "rdma_create_event_channel");
	NEED(channel);
	NONE(channel(), EBUSY);
	EQ(lines_said("served by another copy of Weft already, /.*/libweft.so"), 2);
	CHECK(open_first(first));
	EQ(descriptors("memfd:weft-stat"), 1);
}

CASE("loading.a-copy-that-is-asked-first-serves-and-a-forked-child-may-choose-anew")
{
	const char *mode = getenv("TEST_MODE");
	char path[4096], folder[] = "/tmp/weft-copy-XXXXXX";

	if (mode && strcmp(mode, "replacement") == 0)
		open_both();
	void *first = serving(path, sizeof(path));
	NEED(first);
	void *second = load_copy(path, folder);
	NEED(second);
	CHECK(open_first(second));
	NONE(open_first(first), EBUSY);
	pid_t child = fork();
	if (child == 0) {
		CHECK(open_first(first));
		NONE(open_first(second), EBUSY);
		_exit(0);
	}
	int status = -1;
	EQ(waitpid(child, &status, 0), child);
	EQ(status, 0);
}

CASE("loading.symbols-have-versions")
{
	open_both();
	CHECK(dlvsym(verbs, "ibv_open_device", "IBVERBS_1.1"));
	CHECK(dlvsym(verbs, "ibv_get_sysfs_path", "IBVERBS_1.0"));
	CHECK(dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
	CHECK(dlvsym(verbs, "ibv_query_gid_type", "IBVERBS_PRIVATE_34"));
	CHECK(!dlvsym(verbs, "ibv_open_device", "IBVERBS_1.0"));
	CHECK(dlvsym(cm, "rdma_create_id", "RDMACM_1.0"));
	CHECK(dlvsym(cm, "rdma_establish", "RDMACM_1.2"));
}

CASE("loading.the-drivers-interface-is-there-and-not-served")
{
	open_both();
	int (*cmd)(void) = (void *)dlsym(verbs, "ibv_cmd_alloc_mw");
	void *(*open_device)(void *, void *) = (void *)dlsym(verbs, "verbs_open_device");
	void (*register_driver)(void *) = (void *)dlsym(verbs, "verbs_register_driver_34");
	char *data = dlsym(verbs, "verbs_allow_disassociate_destroy");

	NEED(cmd && open_device && register_driver && data);
	EQ(cmd(), ENOSYS);
	NONE(open_device(NULL, NULL), ENOSYS);
	register_driver(NULL);
	EQ(*data, 0);
}

CASE("loading.rsockets-are-served-by-the-library-beside-this-one")
{
	const char *mode = getenv("TEST_MODE");

	/* A preloaded library has these names for the whole program. */
	if (mode && strcmp(mode, "preload") != 0)
		open_both();
	void *from = cm ? cm : RTLD_DEFAULT;
	int (*make)(int, int, int) = (void *)dlsym(from, "rsocket");
	int (*end)(int) = (void *)dlsym(from, "rclose");
	NEED(make && end);
	FAILS(end(0), EBADF);
	int fd = make(2, 1, 0);
	CHECK(fd > 2);
	EQ(end(fd), 0);
	/* Its other names stay its own: nobody asked for hooks. */
	CHECK(!dlsym(RTLD_DEFAULT, "weft_rsockets"));
}

CASE("loading.a-library-that-is-closed-stays")
{
	int count = 0;

	open_both();
	void ***(*list)(int *) = (void *)dlsym(verbs, "ibv_get_device_list");
	EQ(dlclose(verbs), 0);
	EQ(dlclose(cm), 0);
	CHECK(list(&count) && count == 1);
}

int main(int argc, char **argv)
{
	static const struct program program = {.name = "loading"};

	return cases_main(argc, argv, &program);
}
