/* However the libraries are reached, there is one engine. Linked with neither of them. */
#include <dlfcn.h>

#include "check.h"

/* Which way this run goes; the runner says. */
static int replaced(void)
{
	const char *mode = getenv("TEST_MODE");

	return mode && strcmp(mode, "preload");
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

static void *verbs, *cm;

static void one_engine(void)
{
	void ***(*list)(int *) = (void *)dlsym(verbs, "ibv_get_device_list");
	void ***(*devices)(int *) = (void *)dlsym(cm, "rdma_get_devices");
	void ***(*preloaded)(int *) = (void *)dlsym(RTLD_DEFAULT, "ibv_get_device_list");
	int count = 0;

	begin_case("both libraries name the same device");
	NEED(list && devices);
	void ***from_verbs = list(&count);
	EQUAL(count, 1);
	void ***from_cm = devices(NULL);
	NEED(from_verbs && from_cm);
	/* A context begins with the address of its device. */
	CHECK(from_cm[0][0] == from_verbs[0]);
	if (preloaded) {
		void ***again = preloaded(&count);
		EQUAL(count, 1);
		CHECK(again[0] == from_verbs[0]);
	}

	begin_case("libweft.so is loaded once");
	EQUAL(mapped("libweft.so"), 1);

	begin_case("no other library serves those names");
	EQUAL(mapped("libibverbs.so.1"), 1);
	EQUAL(mapped("librdmacm.so.1"), 1);

	begin_case("there is one engine");
	EQUAL(descriptors("memfd:weft-stat"), 1);
}

static void shells(void)
{
	begin_case("symbols with versions");
	CHECK(dlvsym(verbs, "ibv_open_device", "IBVERBS_1.1"));
	CHECK(dlvsym(verbs, "ibv_get_sysfs_path", "IBVERBS_1.0"));
	CHECK(dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
	CHECK(dlvsym(verbs, "ibv_query_gid_type", "IBVERBS_PRIVATE_34"));
	CHECK(!dlvsym(verbs, "ibv_open_device", "IBVERBS_1.0"));
	CHECK(dlvsym(cm, "rdma_create_id", "RDMACM_1.0"));
	CHECK(dlvsym(cm, "rdma_establish", "RDMACM_1.2"));

	begin_case("the drivers' interface is there and not served");
	int (*cmd)(void) = (void *)dlsym(verbs, "ibv_cmd_alloc_mw");
	void *(*open_device)(void *, void *) = (void *)dlsym(verbs, "verbs_open_device");
	void (*register_driver)(void *) = (void *)dlsym(verbs, "verbs_register_driver_34");
	char *data = dlsym(verbs, "verbs_allow_disassociate_destroy");
	NEED(cmd && open_device && register_driver && data);
	EQUAL(cmd(), ENOSYS);
	IS_NULL(open_device(NULL, NULL), ENOSYS);
	register_driver(NULL);
	EQUAL(*data, 0);
}

static void rsockets(void)
{
	static const char *const names[] = {"rsocket", "rbind", "rlisten", "raccept", "rconnect", "rclose", "rrecv",
					    "rsend", "rread", "rwritev", "rpoll", "rselect", "rfcntl", "riomap"};

	begin_case("rsockets are refused");
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		long (*function)(int, int, int) = (void *)dlsym(cm ? cm : RTLD_DEFAULT, names[i]);
		NEED(function);
		MINUS_ONE(function(0, 0, 0), EOPNOTSUPP);
	}
}

static void unloading(void)
{
	void ***(*list)(int *) = (void *)dlsym(verbs, "ibv_get_device_list");
	int count = 0;

	begin_case("a library that is closed stays");
	EQUAL(dlclose(verbs), 0);
	EQUAL(dlclose(cm), 0);
	CHECK(list(&count) && count == 1);
}

int main(void)
{
	if (!replaced()) {
		skip_case("libraries by name", "the installed ones are behind those names");
		rsockets();
		end_program();
	}
	NEED(verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL));
	NEED(cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL));
	one_engine();
	shells();
	rsockets();
	unloading();
	end_program();
}
