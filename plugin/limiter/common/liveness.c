/* liveness.c - is a process gone?
 *
 * The pid alone is not enough (pids come again), so its start time is compared as well. exec keeps
 * both: such a process no longer maps the usage file, which /proc/PID/maps shows. A file lock would
 * be cheaper to ask for, but a program that closes every descriptor would lose it and with it the
 * count of what it holds. Where nothing can be known the process counts as living. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "liveness.h"
#include "system.h"
#include "text.h"

#define PATH_MAX_HERE 64

struct status {
	uint64_t pid;
	char state;
	long threads;
	uint64_t start;
};

static long read_file(const char *path, char *out, size_t size)
{
	int fd = system_open(path, O_RDONLY);
	long got;

	if (fd < 0)
		return -1;
	got = system_read(fd, out, size - 1);
	system_close(fd);
	if (got >= 0)
		out[got] = '\0';
	return got;
}

/* Fields 1, 3, 20 and 22 of /proc/PID/stat; the second may hold any character, ')' included. */
static bool read_status(const char *path, struct status *out)
{
	const char *at = NULL, *end;
	char text[1024];
	uint64_t value;

	if (read_file(path, text, sizeof(text)) <= 0 || !text_number(text, &out->pid, &end))
		return false;
	for (const char *each = text; (each = text_find(each, ')')) != NULL; each++)
		at = each;
	if (at == NULL || at[1] != ' ')
		return false;
	at += 2;
	out->state = *at;
	for (int field = 3; field < 22; field++) {
		if (field == 20 && text_number(at, &value, &end))
			out->threads = (long)value;
		at = text_find(at, ' ');
		if (at == NULL)
			return false;
		at++;
	}
	return text_number(at, &out->start, &end) && out->start != 0;
}

/* Write "/proc/PID/name". */
static void proc_path(char out[PATH_MAX_HERE], int pid, const char *name)
{
	text_put(text_put_number(text_put(out, "/proc/"), (uint64_t)pid), name);
}

bool process_has_thread(const struct identity *asker, pid_t pid, int thread)
{
	char path[PATH_MAX_HERE];
	struct stat st;

	if (asker->blind)
		return false;
	proc_path(path, (int)pid, "/task/");
	text_put(text_put_number(path + text_length(path), (uint64_t)thread), "");
	return system_stat(path, &st) == 0;
}

struct identity identity_own(void)
{
	struct identity own = { .pid = system_pid(), .image = clock_random() };
	struct status status = { 0 };
	struct stat st;

	if (read_status("/proc/self/stat", &status)) {
		own.blind = status.pid != (uint64_t)own.pid;
		own.start = clock_is_machines() ? status.start : 0;	/* the reader's clock says it */
	}
	if (system_stat("/proc/self/ns/pid", &st) == 0)
		own.namespace = st.st_ino;
	return own;
}

/* Does a line of /proc/PID/maps (address, rights, offset, device, inode, path) have this inode? */
static bool line_has(const char *line, uint64_t inode)
{
	const char *end;
	uint64_t found;

	for (int field = 0; field < 4; field++) {
		line = text_find(line, ' ');
		if (line == NULL)
			return false;
		line++;
	}
	return text_number(line, &found, &end) && found == inode;
}

/* A process that ends gives up its memory first, and what it has open, with what it has of cards, later (do_exit in the
 * kernel). That may fall between two reads of its list: so this is asked once it has been read. */
static bool maps_nothing(const char *path)
{
	char text[64];

	return read_file(path, text, sizeof(text)) <= 0;
}

/* 1: it maps the file, 0: it does not, -1: cannot be read, or it has nothing mapped any more. */
static int maps_file(pid_t pid, uint64_t inode)
{
	char path[PATH_MAX_HERE], text[8192];
	size_t have = 0;
	long got = -1;
	int fd;

	proc_path(path, (int)pid, "/maps");
	fd = system_open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	while ((got = system_read(fd, text + have, sizeof(text) - 1 - have)) > 0) {
		char *line = text, *end;

		have += (size_t)got;
		text[have] = '\0';
		for (; (end = (char *)text_find(line, '\n')) != NULL; line = end + 1) {
			*end = '\0';
			if (line_has(line, inode)) {
				system_close(fd);
				return 1;
			}
		}
		have = text_length(line);
		memmove(text, line, have);
		if (have == sizeof(text) - 1)
			have = 0;	/* a path that long is not ours */
	}
	system_close(fd);
	return got < 0 || maps_nothing(path) ? -1 : 0;
}

uint64_t identity_mapped(uint64_t inode)
{
	return maps_file(system_pid(), inode) == 1 ? inode : 0;
}

bool identity_gone(const struct identity *who, const struct identity *asker, uint64_t inode)
{
	char path[PATH_MAX_HERE];
	struct status status = { 0 };
	bool same;

	if (asker->namespace == 0 || who->namespace != asker->namespace || who->pid <= 0)
		return false;
	same = who->pid == asker->pid && who->start == asker->start;
	if (same)	/* with another image it was before an exec; 0 is one that could not be asked for */
		return who->image != 0 && asker->image != 0 && who->image != asker->image;
	if (system_call(SYS_kill, who->pid, 0, 0, 0, 0, 0) == -ESRCH)
		return true;
	if (asker->blind)
		return false;
	proc_path(path, (int)who->pid, "/stat");
	if (!read_status(path, &status))
		return false;
	if (who->start != 0 && asker->start != 0 && status.start != who->start)
		return true;
	if (status.state == 'Z' || status.state == 'X')	/* the first thread; others may go on */
		return status.threads <= 1;
	return inode != 0 && maps_file(who->pid, inode) == 0;
}
