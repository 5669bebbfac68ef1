// syncs: preloaded, it writes down what a process has put on the disk, in its order: fsync, fdatasync, rename.
// SYNCS_LOG names the file; each line is a call and its paths. What is written down is what libc was asked for.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void note(const char *format, ...)
{
	const char *log = getenv("SYNCS_LOG");
	char line[2 * PATH_MAX + 32];
	va_list args;
	int fd, length;

	if (!log)
		return;
	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, line, (size_t)length) != length)
		abort();
	close(fd);
}

static void note_fd(const char *call, int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return;
	path[length] = '\0';
	note("%s %s\n", call, path);
}

int fsync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
	int done = real(fd);

	if (!done)
		note_fd("sync", fd);
	return done;
}

int fdatasync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	int done = real(fd);

	if (!done)
		note_fd("sync", fd);
	return done;
}

int rename(const char *from, const char *to)
{
	int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
	int done = real(from, to);

	if (!done)
		note("rename %s %s\n", from, to);
	return done;
}

static int path_at(int folder, const char *name, char *path)
{
	char link[64];
	ssize_t length;

	if (folder == AT_FDCWD || name[0] == '/')
		return snprintf(path, PATH_MAX, "%s", name);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
	length = readlink(link, path, PATH_MAX - 1);
	if (length < 0)
		return -1;
	return snprintf(path + length, PATH_MAX - (size_t)length, "/%s", name);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
	int (*real)(int, const char *, int, const char *) =
		(int (*)(int, const char *, int, const char *))dlsym(RTLD_NEXT, "renameat");
	char old[PATH_MAX], new[PATH_MAX];
	int done = real(from_folder, from, to_folder, to);

	if (!done && path_at(from_folder, from, old) > 0 && path_at(to_folder, to, new) > 0)
		note("rename %s %s\n", old, new);
	return done;
}
