/* stamp.c - the limiter's library with other folders in it, in memory alone.
 *
 * The library looks for a container's files where its marks say (common/settings.c). A copy in a
 * folder would need one from which programs may be loaded; /run often is none. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "settings.h"
#include "selftest.h"

#define MARK_ROOM 32

static bool stamp(char *data, size_t size, const char *name, const char *value)
{
	char mark[MARK_ROOM] = "edgegpu-limiter-", *at;

	strncat(mark, name, sizeof(mark) - strlen(mark) - 1);
	strncat(mark, ":", sizeof(mark) - strlen(mark) - 1);
	at = memmem(data, size, mark, sizeof(mark));
	if (at == NULL || strlen(value) >= SETTING_MAX ||
	    (size_t)(data + size - at) < sizeof(mark) + SETTING_MAX)
		return false;
	memset(at + sizeof(mark), 0, SETTING_MAX);
	memcpy(at + sizeof(mark), value, strlen(value));
	return true;
}

static bool fill(int fd, int from, size_t size)
{
	char buffer[1 << 16];
	ssize_t count;

	while (size > 0 && (count = read(from, buffer, sizeof(buffer))) > 0) {
		if (write(fd, buffer, (size_t)count) != count)
			return false;
		size -= (size_t)count;
	}
	return size == 0;
}

static bool stamp_all(int fd, size_t size, const char *folder, const char *driver)
{
	char *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bool done;

	if (data == MAP_FAILED)
		return false;
	done = stamp(data, size, "folder", folder) && stamp(data, size, "driver", driver);
	munmap(data, size);
	return done;
}

int stamp_library(const char *path, const char *folder, const char *driver)
{
	int from = open(path, O_RDONLY | O_CLOEXEC), fd = -1;
	struct stat st;

	if (from < 0)
		return -1;
	if (fstat(from, &st) == 0 && st.st_size > 0)
		fd = (int)syscall(SYS_memfd_create, "edgegpu-selftest", 0);
	if (fd >= 0 && !(fill(fd, from, (size_t)st.st_size) &&
			 stamp_all(fd, (size_t)st.st_size, folder, driver))) {
		close(fd);
		fd = -1;
	}
	close(from);
	return fd;
}
