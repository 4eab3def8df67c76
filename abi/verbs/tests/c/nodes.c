/* The device's files in /dev and /sys: there are none, so the calls that look at a file or open one are answered in
 * front of the C library, under every name that a program may have been built to call. Only a preloaded library can
 * do that. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edge.h"

#define NODE "/dev/infiniband/weft0"
#define OTHER "/dev/infiniband/weft1"
#define CLASS "/sys/class/infiniband/weft0"
#define LINK_LAYER CLASS "/ports/1/link_layer"

/* What programs call that were linked before glibc 2.33. */
enum { OLD_STAT_VERSION = 1 };
int old_xstat(int version, const char *path, struct stat *status);
int old_xstat64(int version, const char *path, struct stat64 *status);
int old_lxstat(int version, const char *path, struct stat *status);
int old_lxstat64(int version, const char *path, struct stat64 *status);
int old_fxstatat(int version, int at, const char *path, struct stat *status, int flags);
int old_fxstatat64(int version, int at, const char *path, struct stat64 *status, int flags);
__asm__(".symver old_xstat,__xstat@GLIBC_2.2.5");
__asm__(".symver old_xstat64,__xstat64@GLIBC_2.2.5");
__asm__(".symver old_lxstat,__lxstat@GLIBC_2.2.5");
__asm__(".symver old_lxstat64,__lxstat64@GLIBC_2.2.5");
__asm__(".symver old_fxstatat,__fxstatat@GLIBC_2.4");
__asm__(".symver old_fxstatat64,__fxstatat64@GLIBC_2.4");

/* What fortified programs call, and aliases. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);
int __openat64_2(int at, const char *path, int flags);
int __open(const char *path, int flags, ...);
int __open64(const char *path, int flags, ...);

enum { LOOKS = 13, OPENS = 12 };

/* The mode of a path by the look of this number, 0 where there is nothing. */
static mode_t look(int how, const char *path, int nofollow)
{
	struct stat s = {};
	struct stat64 s64 = {};
	struct statx x = {};
	int flags = nofollow ? AT_SYMLINK_NOFOLLOW : 0;

	errno = 0;
	switch (how) {
	case 0: return stat(path, &s) ? 0 : s.st_mode;
	case 1: return stat64(path, &s64) ? 0 : s64.st_mode;
	case 2: return lstat(path, &s) ? 0 : s.st_mode;
	case 3: return lstat64(path, &s64) ? 0 : s64.st_mode;
	case 4: return fstatat(AT_FDCWD, path, &s, flags) ? 0 : s.st_mode;
	case 5: return fstatat64(AT_FDCWD, path, &s64, flags) ? 0 : s64.st_mode;
	case 6: return statx(AT_FDCWD, path, flags, STATX_BASIC_STATS, &x) ? 0 : x.stx_mode;
	case 7: return old_xstat(OLD_STAT_VERSION, path, &s) ? 0 : s.st_mode;
	case 8: return old_xstat64(OLD_STAT_VERSION, path, &s64) ? 0 : s64.st_mode;
	case 9: return old_lxstat(OLD_STAT_VERSION, path, &s) ? 0 : s.st_mode;
	case 10: return old_lxstat64(OLD_STAT_VERSION, path, &s64) ? 0 : s64.st_mode;
	case 11: return old_fxstatat(OLD_STAT_VERSION, AT_FDCWD, path, &s, flags) ? 0 : s.st_mode;
	default: return old_fxstatat64(OLD_STAT_VERSION, AT_FDCWD, path, &s64, flags) ? 0 : s64.st_mode;
	}
}

/* A descriptor of a path by the open of this number. */
static int open_by(int how, const char *path)
{
	int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC;
	FILE *file;

	errno = 0;
	switch (how) {
	case 0: return open(path, flags);
	case 1: return open64(path, flags);
	case 2: return __open(path, flags);
	case 3: return __open64(path, flags);
	case 4: return __open_2(path, flags);
	case 5: return __open64_2(path, flags);
	case 6: return openat(AT_FDCWD, path, flags);
	case 7: return openat64(AT_FDCWD, path, flags);
	case 8: return __openat_2(AT_FDCWD, path, flags);
	case 9: return __openat64_2(AT_FDCWD, path, flags);
	case 10: file = fopen(path, "re"); break;
	default: file = fopen64(path, "re");
	}
	if (!file)
		return -1;
	int fd = dup(fileno(file));
	fclose(file);
	return fd;
}

/* The text of a file, without the end of its line. */
static const char *text_of(const char *path)
{
	static char text[256];
	FILE *file = fopen(path, "r");

	text[0] = 0;
	if (file) {
		if (fgets(text, sizeof(text), file))
			text[strcspn(text, "\n")] = 0;
		fclose(file);
	}
	return text;
}

/* A preloaded library alone stands in front of the C library. */
static void need_preloaded(void)
{
	const char *mode = getenv("TEST_MODE");

	if (!mode || strcmp(mode, "replacement") == 0)
		SKIP("a library that is not preloaded answers no call of the C library");
}

CASE("nodes.the-devices-file-seems-to-be-there-by-every-name")
{
	need_preloaded();
	for (int how = 0; how < LOOKS; how++)
		for (int nofollow = 0; nofollow < 2; nofollow++)
			CHECKF(S_ISCHR(look(how, NODE, nofollow)), "look %d", how);
	EQ(access(NODE, R_OK | W_OK), 0);
	EQ(eaccess(NODE, R_OK | W_OK), 0);
	EQ(euidaccess(NODE, R_OK | W_OK), 0);
	EQ(faccessat(AT_FDCWD, NODE, R_OK | W_OK, 0), 0);
	int (*dynamic)(const char *, struct stat *) = dlsym(RTLD_DEFAULT, "stat");
	struct stat status;
	if (dynamic)
		EQ(dynamic(NODE, &status), 0);
}

CASE("nodes.its-files-in-sysfs-are-files-and-its-folders-folders")
{
	need_preloaded();
	for (int how = 0; how < LOOKS; how++)
		for (int nofollow = 0; nofollow < 2; nofollow++) {
			CHECKF(S_ISREG(look(how, LINK_LAYER, nofollow)), "look %d", how);
			CHECK(S_ISDIR(look(how, CLASS "/ports/1/gid_attrs", nofollow)));
		}
	EQ(access(LINK_LAYER, R_OK), 0);
	FAILS(access(LINK_LAYER, X_OK), EACCES);
	EQ(faccessat(AT_FDCWD, CLASS "//ports/1/", R_OK, 0), 0);
}

CASE("nodes.other-files-are-what-they-are")
{
	need_preloaded();
	for (int how = 0; how < LOOKS; how++) {
		EQ(look(how, OTHER, 0), 0);
		EQ(errno, ENOENT);
		EQ(look(how, "/dev/infiniband/weft", 0), 0);
		EQ(look(how, CLASS "/ports/2", 0), 0);
		EQ(errno, ENOENT);
		EQ(look(how, "/sys/class/infiniband_weft0", 0), 0);
		CHECK(S_ISDIR(look(how, "/", 0)));
	}
	FAILS(access("/dev/infiniband/weft00", F_OK), ENOENT);
	EQ(access("/", X_OK), 0);
}

CASE("nodes.a-file-of-sysfs-is-read-by-every-name")
{
	char text[32];
	struct stat status;

	need_preloaded();
	for (int how = 0; how < OPENS; how++) {
		int fd = open_by(how, LINK_LAYER);
		if (!CHECKF(fd >= 0, "open %d", how))
			continue;
		memset(text, 0, sizeof(text));
		EQ(read(fd, text, sizeof(text)), 9);
		CHECK(!strcmp(text, "Ethernet\n"));
		EQ(fstat(fd, &status), 0);
		EQ(status.st_size, 9);
		EQ(close(fd), 0);
		FAILS(open_by(how, CLASS "/ports/1/none"), ENOENT);
	}
}

CASE("nodes.a-file-that-is-made-has-the-mode-it-was-given")
{
	struct stat status;
	char path[64];

	need_preloaded();
	snprintf(path, sizeof(path), "/tmp/weft-nodes-%d", getpid());
	int fd = openat(AT_FDCWD, path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	NEED(fd >= 0);
	EQ(fstat(fd, &status), 0);
	EQ(status.st_mode & 0777, 0600);
	EQ(close(fd), 0);
	EQ(unlink(path), 0);
}

CASE("nodes.no-descriptor-stays-behind")
{
	need_preloaded();
	int next = dup(0);
	EQ(close(next), 0);
	for (int i = 0; i < 10; i++)
		text_of(LINK_LAYER);
	int again = dup(0);
	EQ(again, next);
	EQ(close(again), 0);
}

static int not_hidden(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

CASE("nodes.the-class-of-devices-is-listed-with-the-device-in-it")
{
	struct dirent *entry;
	int found = 0;
	DIR *stream;

	need_preloaded();
	NEED(stream = opendir("/sys/class/infiniband"));
	while ((entry = readdir(stream)))
		found += !strcmp(entry->d_name, "weft0") && entry->d_type == DT_DIR;
	EQ(found, 1);
	rewinddir(stream);
	while ((entry = readdir(stream)))
		found += !strcmp(entry->d_name, "weft0");
	EQ(found, 2);
	EQ(closedir(stream), 0);
}

CASE("nodes.a-place-in-a-folder-is-found-again")
{
	struct dirent *entry;
	int found = 0;
	DIR *stream, *root;

	need_preloaded();
	NEED(stream = opendir(CLASS "/ports/1"));
	NEED(readdir(stream) && readdir(stream));
	long place = telldir(stream);
	NEED(entry = readdir(stream));
	char name[256];
	strcpy(name, entry->d_name);
	while (readdir(stream))
		;
	seekdir(stream, place);
	NEED(entry = readdir(stream));
	CHECK(!strcmp(name, entry->d_name));
	NEED(root = opendir("/"));
	while ((entry = readdir(root)))
		found += !strcmp(entry->d_name, "proc");
	EQ(found, 1);
	EQ(closedir(root), 0);
	EQ(closedir(stream), 0);
}

CASE("nodes.a-folder-is-scanned-in-order-by-a-filter")
{
	struct dirent **list = NULL;

	need_preloaded();
	int count = scandir(CLASS, &list, not_hidden, alphasort);
	EQ(count, 6);
	NEED(count == 6);
	CHECK(!strcmp(list[0]->d_name, "fw_ver") && !strcmp(list[5]->d_name, "sys_image_guid"));
	for (int i = 0; i < count; i++)
		free(list[i]);
	free(list);
	count = scandir(CLASS "/ports", &list, NULL, NULL);
	EQ(count, 3);
	for (int i = 0; i < count; i++)
		free(list[i]);
	free(list);
}

CASE("nodes.what-is-no-folder-is-not-listed")
{
	struct dirent **list = NULL;

	need_preloaded();
	CHECK(!opendir(LINK_LAYER) && errno == ENOENT);
	CHECK(!opendir(CLASS "/none") && errno == ENOENT);
	EQ(scandir(CLASS "/none", &list, NULL, NULL), -1);
}

/* What programs that choose a GID read: they take no type for RoCE v1, and would meet nobody. */
CASE("nodes.the-gid-table-stands-in-sysfs")
{
	const char *face = getenv("WEFT_FACE");
	struct ibv_gid_entry entry;
	struct in6_addr gid;
	char path[128], name[IF_NAMESIZE];

	need_preloaded();
	for (int i = 0; i < env.port.gid_tbl_len; i++) {
		EQ(ibv_query_gid_ex(env.ctx, 1, (uint32_t)i, &entry, 0), 0);
		snprintf(path, sizeof(path), CLASS "/ports/1/gids/%d", i);
		EQ(inet_pton(AF_INET6, text_of(path), &gid), 1);
		SAME(&gid, &entry.gid, sizeof(gid));
		snprintf(path, sizeof(path), CLASS "/ports/1/gid_attrs/types/%d", i);
		CHECK(!strcmp(text_of(path), face && !strcmp(face, "iwarp") ? "IB/RoCE v1" : "RoCE v2"));
		snprintf(path, sizeof(path), CLASS "/ports/1/gid_attrs/ndevs/%d", i);
		NEED(if_indextoname(entry.ndev_ifindex, name));
		CHECK(!strcmp(text_of(path), name));
	}
	snprintf(path, sizeof(path), CLASS "/ports/1/gid_attrs/types/%d", env.port.gid_tbl_len);
	FAILS(access(path, F_OK), ENOENT);
}

/* What is answered from memory is a file as well. */
CASE("nodes.a-program-that-may-write-no-files-goes-on-without-the-devices")
{
	struct rlimit before, none;

	need_preloaded();
	EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
	FAILS(open(LINK_LAYER, O_RDONLY), ENOENT);
	EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
	CHECK(!strcmp(text_of(LINK_LAYER), "Ethernet") || !strcmp(text_of(LINK_LAYER), "InfiniBand"));
}
