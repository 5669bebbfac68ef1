/* liveness.c - is a process gone?
 *
 * The pid alone is not enough (pids come again), so its start time is compared as well. exec keeps
 * both: such a process no longer maps the usage file, which /proc/PID/maps shows. A file lock would
 * be cheaper to ask for, but a program that closes every descriptor would lose it and with it the
 * count of what it holds. Where nothing can be known the process counts as living. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "liveness.h"

struct status {
	char state;
	long threads;
	uint64_t start;
};

static ssize_t read_file(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -1;
	got = read(fd, out, size - 1);
	close(fd);
	if (got >= 0)
		out[got] = '\0';
	return got;
}

/* Fields 3, 20 and 22 of /proc/PID/stat; the second may hold any character, ')' included. */
static bool read_status(const char *path, struct status *out)
{
	char text[1024], *at;

	if (read_file(path, text, sizeof(text)) <= 0)
		return false;
	at = strrchr(text, ')');
	if (at == NULL || at[1] != ' ')
		return false;
	at += 2;
	out->state = *at;
	for (int field = 3; field < 22; field++) {
		if (field == 20)
			out->threads = strtol(at, NULL, 10);
		at = strchr(at, ' ');
		if (at == NULL)
			return false;
		at++;
	}
	out->start = strtoull(at, NULL, 10);
	return out->start != 0;
}

static uint64_t image(void)
{
	const void *random = (const void *)getauxval(AT_RANDOM);
	uint64_t value = 0;

	if (random != NULL)
		memcpy(&value, random, sizeof(value));
	return value;
}

struct identity identity_own(void)
{
	struct identity own = { .pid = getpid(), .image = image() };
	struct status status;
	struct stat st;

	if (read_status("/proc/self/stat", &status))
		own.start = status.start;
	if (stat("/proc/self/ns/pid", &st) == 0)
		own.namespace = st.st_ino;
	return own;
}

/* Does a line of /proc/PID/maps (address, rights, offset, device, inode, path) have this inode? */
static bool line_has(const char *line, uint64_t inode)
{
	for (int field = 0; field < 4; field++) {
		line = strchr(line, ' ');
		if (line == NULL)
			return false;
		line++;
	}
	return strtoull(line, NULL, 10) == inode;
}

/* 1: it maps the file, 0: it does not, -1: cannot be read. */
static int maps_file(pid_t pid, uint64_t inode)
{
	char path[64], text[8192];
	size_t have = 0;
	ssize_t got = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	while ((got = read(fd, text + have, sizeof(text) - 1 - have)) > 0) {
		char *line = text, *end;

		have += (size_t)got;
		text[have] = '\0';
		for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
			*end = '\0';
			if (line_has(line, inode)) {
				close(fd);
				return 1;
			}
		}
		have = strlen(line);
		memmove(text, line, have);
		if (have == sizeof(text) - 1)
			have = 0;	/* a path that long is not ours */
	}
	close(fd);
	return got < 0 ? -1 : 0;
}

uint64_t identity_mapped(uint64_t inode)
{
	return maps_file(getpid(), inode) == 1 ? inode : 0;
}

bool identity_gone(const struct identity *who, const struct identity *asker, uint64_t inode)
{
	char path[64];
	struct status status;
	bool same;

	if (asker->namespace == 0 || who->namespace != asker->namespace || who->pid <= 0)
		return false;
	same = who->pid == asker->pid && who->start == asker->start;
	if (same)
		return who->image != asker->image;
	if (kill(who->pid, 0) < 0 && errno == ESRCH)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)who->pid);
	if (!read_status(path, &status))
		return false;
	if (who->start != 0 && status.start != who->start)
		return true;
	if (status.state == 'Z' || status.state == 'X')	/* the first thread; others may go on */
		return status.threads <= 1;
	return inode != 0 && maps_file(who->pid, inode) == 0;
}
