/* state.c - maps the shared state and keeps its lock and its table of uuids.
 *
 * The lock is flock() on a description of our own: it ends with the process that held it, works
 * across pid namespaces, and does not mix with the per-slot record locks of slots.c. The file is
 * never closed once open: closing any descriptor of it would drop this process's record locks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char path[PATH_MAX + 64];
static struct state *map;
static pid_t opened_by;
static int fd = -1;

struct state *state_map(void)
{
	return map;
}

int state_fd(void)
{
	return fd;
}

static void before_fork(void)
{
	pthread_mutex_lock(&mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&mutex);
}

static int map_file(void)
{
	struct state *seen;
	struct stat st;

	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_size != sizeof(struct state))
		return -EPROTO;
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (seen == MAP_FAILED)
		return -errno;
	if (seen->magic != STATE_MAGIC || seen->version != STATE_VERSION ||
	    seen->size != sizeof(*seen)) {
		munmap(seen, sizeof(*seen));
		return -EPROTO;
	}
	map = seen;
	opened_by = getpid();
	pthread_atfork(before_fork, after_fork, after_fork);
	return 0;
}

int sim_state_open(const char *root)
{
	int ret = 0;

	pthread_mutex_lock(&mutex);
	if (map == NULL) {
		snprintf(path, sizeof(path), "%s" SIM_FOLDER "/state", root);
		ret = map_file();
		if (ret < 0 && fd >= 0) {
			close(fd);
			fd = -1;
		}
	}
	pthread_mutex_unlock(&mutex);
	return ret;
}

int sim_state_create(const char *root)
{
	static struct state head;	/* no initial value: its 5 MB of zeros would lie in each library's file */
	char temp[sizeof(path) + 16], real[sizeof(path)];
	int file, ret = 0;

	head.magic = STATE_MAGIC;
	head.version = STATE_VERSION;
	head.size = sizeof(head);
	snprintf(real, sizeof(real), "%s" SIM_FOLDER "/state", root);
	snprintf(temp, sizeof(temp), "%s.%d", real, getpid());
	file = open(temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (file < 0)
		return -errno;
	if (fchmod(file, 0666) < 0 || ftruncate(file, sizeof(head)) < 0 ||
	    pwrite(file, &head, offsetof(struct state, entries), 0) < 0 || fsync(file) < 0 ||
	    rename(temp, real) < 0) {
		ret = -errno;
		unlink(temp);
	}
	close(file);
	return ret;
}

void sim_lock(void)
{
	pthread_mutex_lock(&mutex);
	if (opened_by != getpid()) {	/* forked: the parent's flock would be ours too */
		close(fd);
		fd = open(path, O_RDWR | O_CLOEXEC);
		opened_by = getpid();
	}
	while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
		;
}

void sim_unlock(void)
{
	flock(fd, LOCK_UN);
	pthread_mutex_unlock(&mutex);
}

int sim_entry_find(const char *uuid)
{
	for (uint32_t i = 0; i < map->nentries && i < STATE_ENTRIES; i++)
		if (strcmp(map->entries[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

int sim_entry(const char *uuid)
{
	int index = sim_entry_find(uuid);

	if (index >= 0 || map->nentries >= STATE_ENTRIES)
		return index;
	index = (int)map->nentries;
	memset(&map->entries[index], 0, sizeof(map->entries[index]));
	strncpy(map->entries[index].uuid, uuid, SIM_UUID_LEN - 1);
	map->nentries++;		/* last: a kill before this leaves the table as it was */
	return index;
}

void state_futex_wait(_Atomic uint32_t *word, uint32_t seen, int timeout_ms)
{
	struct timespec limit = { timeout_ms / 1000, (timeout_ms % 1000) * 1000000L };

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void state_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
