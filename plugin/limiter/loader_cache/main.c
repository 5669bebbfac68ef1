/* main.c - `edgegpu-loader-cache FOLDER... -- NAME...`: the container's loader cache gets the driver's libraries.
 *
 * A createContainer hook of the Open Container Initiative: the runtime has made the container's mounts and not yet
 * entered its root, and its state comes on stdin. Programs that ask `ldconfig -p` for the driver find it then.
 *
 * It runs as root on the machine's files, over a root that the image's author has laid out: every path in there
 * is opened by openat2(2) within the root, without magic links, and the cache on the root's own file system alone,
 * for a volume may be a folder of the machine. Nothing comes from the environment, which may be the container's, no
 * libc is in it, and nothing is printed. What cannot be done is left: a hook that fails, or does not end,
 * keeps the container from starting. So it ends with 0, whatever happens, within a second.
 *
 * NAME is looked for in each FOLDER, and the first that has it counts. A new cache is made where there is none
 * and programs can ask for it: glibc's loader and ldconfig are there. The root is not read-only yet (runc:
 * finalizeRootfs, crun: libcrun_finalize_mounts, both later). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>

#include "cache.h"
#include "json.h"
#include "system.h"
#include "text.h"

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef __aarch64__
#define LOADER "lib64/ld-linux-x86-64.so.2"
#else
#define LOADER "lib/ld-linux-aarch64.so.1"
#endif

enum {
	STATE_BYTES = 1 << 20,
	CONFIG_BYTES = 4 << 20,
	CACHE_BYTES = 2 << 20,		/* an image's has 20 to 200 KB; a container's memory limit counts it */
	OURS_BYTES = 64 << 10,
	MOST_LIBRARIES = 128,
	PATH_BYTES = 4096,
	ALARM_US = 800000,
	EXISTS = 17,
	NOT_THERE = 2,
};

#define CACHE "etc/ld.so.cache"
#define NAME "ld.so.cache"
#define NEW_NAME ".ld.so.cache.edgegpu"
#define WITHIN 0x12u		/* RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS */
#define OWN_FILES 0x01u		/* RESOLVE_NO_XDEV */

static char document[CONFIG_BYTES];
static char paths[OURS_BYTES];
static unsigned char old_cache[CACHE_BYTES];
static _Alignas(8) unsigned char new_cache[CACHE_BYTES + OURS_BYTES];
static struct library libraries[MOST_LIBRARIES];
static volatile int unfinished = -1;	/* the folder with a new cache that has not taken its place yet */

static void end(int signal)
{
	(void)signal;
	if (unfinished >= 0)
		system_call(SYS_unlinkat, unfinished, (long)NEW_NAME, 0, 0, 0, 0);
	for (;;)
		system_call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

/* No signal ends it with another status, and one comes in time. */
static void end_in_time(void)
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} action = { end, 0x04000000, NULL, ~0UL };	/* SA_RESTORER: the handler does not return */
	struct itimerval once = { .it_value = { .tv_usec = ALARM_US } };
	unsigned long none = 0;

	for (int number = 1; number < 32; number++)
		if (number != SIGCHLD && number != SIGCONT && number != SIGURG && number != SIGWINCH)
			system_call(SYS_rt_sigaction, number, (long)&action, 0, sizeof(action.mask), 0, 0);
	system_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof(none), 0, 0);
	system_call(SYS_setitimer, ITIMER_REAL, (long)&once, 0, 0, 0, 0);
}

static int open_within(int root, const char *path, int flags, uint64_t resolve)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = { (uint64_t)(flags | O_CLOEXEC), 0, resolve };

	return (int)system_call(SYS_openat2, root, (long)path, (long)&how, sizeof(how), 0, 0);
}

static bool is_file(int file)
{
	struct stat known;

	return system_fstat(file, &known) == 0 && S_ISREG(known.st_mode);
}

static bool has_file(int root, const char *path)
{
	int file = open_within(root, path, O_PATH, WITHIN);
	bool found = file >= 0 && is_file(file);

	if (file >= 0)
		system_close(file);
	return found;
}

/* All that can be read, which has to be less than there is room for. Negative: it cannot be read, or is more. */
static long read_all(int file, void *out, size_t room)
{
	size_t length = 0;

	for (;;) {
		long got = system_read(file, (char *)out + length, room - length);

		if (got < 0)
			return got;
		if (got == 0)
			return (long)length;
		length += (size_t)got;
		if (length == room)
			return -1;
	}
}

static long read_file(int folder, const char *path, void *out, size_t room)
{
	int file = (int)system_call(SYS_openat, folder, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	long length;

	if (file < 0)
		return file;
	length = read_all(file, out, room);
	system_close(file);
	return length;
}

/* The root of the container whose state comes on stdin; it may not be the machine's. Negative: none. */
static int open_root(void)
{
	struct stat root, machine;
	char path[PATH_BYTES];
	long length = read_all(0, document, STATE_BYTES);
	int bundle, found;

	if (length < 0 || !json_text(document, (size_t)length, NULL, "bundle", path, sizeof(path)) || path[0] != '/')
		return -1;
	bundle = system_open(path, O_PATH | O_DIRECTORY);
	if (bundle < 0)
		return -1;
	length = read_file(bundle, "config.json", document, sizeof(document));
	if (length < 0 || !json_text(document, (size_t)length, "root", "path", path, sizeof(path)))
		return -1;
	found = (int)system_call(SYS_openat, bundle, (long)path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 0, 0);
	if (found < 0 || system_fstat(found, &root) < 0 || system_stat("/", &machine) < 0 ||
	    (root.st_dev == machine.st_dev && root.st_ino == machine.st_ino))
		return -1;
	return found;
}

/* The cache that the container has. 0: it has none, and one that we make is read. Negative: it stays what it is. */
static long read_cache(int root)
{
	int file = open_within(root, CACHE, O_PATH, WITHIN | OWN_FILES);
	long length;

	if (file == -NOT_THERE)
		return has_file(root, LOADER) && (has_file(root, "sbin/ldconfig") || has_file(root, "usr/sbin/ldconfig"))
			       ? 0 : -1;
	if (file < 0 || !is_file(file))		/* no FIFO and no device is opened */
		return -1;
	system_close(file);
	file = open_within(root, CACHE, O_RDONLY | O_NONBLOCK | O_NOCTTY, WITHIN | OWN_FILES);
	if (file < 0 || !is_file(file))
		return -1;
	length = read_all(file, old_cache, sizeof(old_cache));
	system_close(file);
	return length > 0 ? length : -1;
}

/* Put FOLDER/NAME at `at`; returns the end, NULL without room. */
static char *put_path(char *at, const char *folder, const char *name)
{
	size_t first = text_length(folder), second = text_length(name);

	if (first + second + 2 > (size_t)(paths + sizeof(paths) - at))
		return NULL;
	memcpy(at, folder, first);
	at[first] = '/';
	memcpy(at + first + 1, name, second + 1);
	return at + first + second + 2;
}

static size_t find_libraries(int root, char **folders, char **names)
{
	size_t count = 0;
	char *at = paths;

	for (; *names != NULL && count < MOST_LIBRARIES; names++) {
		for (char **folder = folders; *folder != NULL; folder++) {
			char *next = put_path(at, *folder, *names);

			if (next == NULL)
				return count;
			if (!has_file(root, at))
				continue;
			libraries[count++] = (struct library) { *names, at };
			at = next;
			break;
		}
	}
	return count;
}

static bool write_all(int file, const unsigned char *from, size_t length)
{
	while (length > 0) {
		long done = system_call(SYS_write, file, (long)from, (long)length, 0, 0, 0);

		if (done <= 0)
			return false;
		from += done;
		length -= (size_t)done;
	}
	return true;
}

static int make_new(int folder)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

	return (int)system_call(SYS_openat, folder, (long)NEW_NAME, flags, 0644, 0, 0);
}

static void replace(int root, size_t length)
{
	int folder = open_within(root, "etc", O_PATH | O_DIRECTORY, WITHIN | OWN_FILES), file;

	if (folder < 0)
		return;
	file = make_new(folder);
	if (file == -EXISTS) {			/* of an earlier try, in an image of that container */
		system_call(SYS_unlinkat, folder, (long)NEW_NAME, 0, 0, 0, 0);
		file = make_new(folder);
	}
	if (file < 0)
		return;
	unfinished = folder;
	if (write_all(file, new_cache, length) && system_call(SYS_fchmod, file, 0644, 0, 0, 0, 0) == 0 &&
	    system_call(SYS_renameat, folder, (long)NEW_NAME, folder, (long)NAME, 0, 0) == 0)
		unfinished = -1;
}

static void work(char **folders, char **names)
{
	int root = open_root();
	long length = root < 0 ? -1 : read_cache(root);
	size_t count = length < 0 ? 0 : find_libraries(root, folders, names);
	size_t merged = cache_merge(old_cache, count == 0 ? 0 : (size_t)length, libraries, count, new_cache,
				    sizeof(new_cache));

	if (merged > 0)
		replace(root, merged);
}

/* What the kernel lays out for a new program: the number of arguments, the arguments, NULL. */
__attribute__((noreturn, used)) void begin(long *stack)
{
	char **arguments = (char **)(stack + 1) + 1, **names;

	end_in_time();
	if (*stack > 1) {
		for (names = arguments; *names != NULL && !text_equal(*names, "--"); names++)
			;
		if (*names != NULL) {
			*names = NULL;
			work(arguments, names + 1);
		}
	}
	end(0);
	__builtin_unreachable();
}

#if defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl begin\n");
#else
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tcall begin\n");
#endif
