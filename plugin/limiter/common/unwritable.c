/* unwritable.c - lets people know that a container's programs may not write their usage file.
 *
 * They are refused all card memory then, and nobody could tell why: what the plugin reads of a container is that file.
 * A line on stderr is the one exception from saying nothing. It is written once in a process, and only where stderr is a
 * pipe or a terminal: in its place may stand something of the program's.
 *
 * For the plugin there is a mark: an empty file in memory, mapped without access, whose name stands in /proc/PID/maps
 * (usage_file.py). It takes no page and no descriptor, a child has it too, and no label of SELinux that forbids the
 * usage file forbids it. Where seccomp forbids memfd_create, the line is all that there is. */
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
#define AFTER "); SELinux, AppArmor or a read-only mount can be why\n"

#define MARK "edgegpu-usage-unwritable"
#define MARK_BYTES 4096
#define CLOSE_ON_EXEC 1u		/* MFD_CLOEXEC: <sys/mman.h> has it only of a newer glibc */

#define LOOKS 4				/* the plugin looks every two seconds, and a refused program may end at once */
#define LOOK_NS 750000000

static bool said, marked;

static bool is_for_people(int file)
{
	struct stat st;

	return system_fstat(file, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode));
}

static void write_line(const char *path, long error)
{
	char line[SETTING_MAX + 16 + sizeof(BEFORE) + sizeof(BETWEEN) + sizeof(AFTER) + 20], *end;

	end = text_put(text_put(text_put(line, BEFORE), path), BETWEEN);
	end = text_put(text_put_number(end, (uint64_t)-error), AFTER);
	system_call(SYS_write, STDERR, (long)line, end - line, 0, 0, 0);
}

static bool leave_mark(void)
{
	long file = system_call(SYS_memfd_create, (long)MARK, CLOSE_ON_EXEC, 0, 0, 0, 0), at;

	if (file < 0)
		return false;
	at = system_call(SYS_mmap, 0, MARK_BYTES, PROT_NONE, MAP_SHARED, file, 0);
	system_close((int)file);
	return at > 0 || at <= -4096;
}

void usage_unwritable(const char *path, long error)
{
	if (error != -EACCES && error != -EPERM && error != -EROFS)
		return;
	if (__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		return;
	if (leave_mark())
		__atomic_store_n(&marked, true, __ATOMIC_RELAXED);
	if (is_for_people(STDERR))
		write_line(path, error);
}

void usage_show_mark(void)
{
	if (!__atomic_exchange_n(&marked, false, __ATOMIC_RELAXED))
		return;
	for (int i = 0; i < LOOKS; i++)
		system_sleep(LOOK_NS);
}
