/* unwritable.c - says in words that a container's programs may not write their usage file.
 *
 * They are refused all card memory then, and nobody could tell why: what the plugin reads of a container is that file.
 * A line on stderr is the one exception from saying nothing. It is written once in a process, and only where stderr is a
 * pipe or a terminal: in its place may stand something of the program's. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>

#include "settings.h"
#include "system.h"
#include "text.h"
#include "usage_file.h"

#define STDERR 2
#define BEFORE "edgegpu: programs of this container get no card memory: "
#define BETWEEN " cannot be written (error "
#define AFTER "); SELinux or a user namespace (hostUsers: false) can be why\n"

static bool said;

static bool is_for_people(int file)
{
	struct stat st;

	return system_fstat(file, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode));
}

void usage_unwritable(const char *path, long error)
{
	char line[SETTING_MAX + 16 + sizeof(BEFORE) + sizeof(BETWEEN) + sizeof(AFTER) + 20], *end;

	if (error != -EACCES && error != -EPERM && error != -EROFS)
		return;
	if (__atomic_exchange_n(&said, true, __ATOMIC_RELAXED) || !is_for_people(STDERR))
		return;
	end = text_put(text_put(text_put(line, BEFORE), path), BETWEEN);
	end = text_put(text_put_number(end, (uint64_t)-error), AFTER);
	system_call(SYS_write, STDERR, (long)line, end - line, 0, 0, 0);
}
