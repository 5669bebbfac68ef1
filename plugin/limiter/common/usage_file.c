/* usage_file.c - maps the usage file, and claims and frees slots in it.
 *
 * A slot is claimed under flock() on a description of its own: it excludes another copy of the limiter
 * in this process too, and the kernel drops it with its process. The file is not kept open: nothing of
 * ours stands among the program's descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "liveness.h"
#include "settings.h"
#include "usage_file.h"

#define LOCK_TRIES 2000			/* of a millisecond each */

static struct usage *mapped;
static uint64_t inode;

struct usage *usage_map(void)
{
	return __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
}

unsigned int usage_high(const struct usage *map)
{
	uint32_t high = __atomic_load_n(&map->high, __ATOMIC_ACQUIRE);

	return high < USAGE_SLOTS ? high : USAGE_SLOTS;
}

static bool lock_file(int fd)
{
	struct timespec pause = { 0, 1000000 };

	for (int tries = 0; tries < LOCK_TRIES; tries++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return true;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return false;
		nanosleep(&pause, NULL);
	}
	return false;
}

static bool map_file(int fd)
{
	struct stat st;
	struct usage *seen;

	if (usage_map() != NULL)
		return true;
	if (fstat(fd, &st) < 0 || st.st_size != sizeof(*seen))
		return false;
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (seen == MAP_FAILED)
		return false;
	if (seen->magic == 0) {		/* under the lock: nobody else is here */
		seen->version = USAGE_VERSION;
		seen->size = sizeof(*seen);
		seen->slots = USAGE_SLOTS;
		__atomic_store_n(&seen->magic, USAGE_MAGIC, __ATOMIC_RELEASE);
	}
	if (seen->magic != USAGE_MAGIC || seen->version != USAGE_VERSION ||
	    seen->size != sizeof(*seen) || seen->slots != USAGE_SLOTS) {
		munmap(seen, sizeof(*seen));
		return false;
	}
	inode = identity_mapped(st.st_ino);
	__atomic_store_n(&mapped, seen, __ATOMIC_RELEASE);
	return true;
}

/* A child that another thread forks meanwhile has the description as well: unlock, then close. */
static void close_locked(int fd)
{
	flock(fd, LOCK_UN);
	close(fd);
}

/* The file, locked. -1: it cannot be used. */
static int open_locked(void)
{
	char path[SETTING_MAX + 16];
	int fd;

	if (!setting_path(path, sizeof(path), setting_folder(), "usage"))
		return -1;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && (!lock_file(fd) || !map_file(fd))) {
		close_locked(fd);
		return -1;
	}
	return fd;
}

static struct identity identity_of(const struct usage_slot *slot)
{
	return (struct identity){
		.start = __atomic_load_n(&slot->start, __ATOMIC_RELAXED),
		.namespace = __atomic_load_n(&slot->namespace, __ATOMIC_RELAXED),
		.image = __atomic_load_n(&slot->image, __ATOMIC_RELAXED),
		.pid = (pid_t)__atomic_load_n(&slot->pid, __ATOMIC_RELAXED),
	};
}

bool usage_slot_lives(const struct usage *map, unsigned int slot)
{
	struct identity own = identity_own(), who = identity_of(&map->all[slot]);

	return !identity_gone(&who, &own, inode);
}

/* A tag that was read before the identity and is still there after it: they belong together. */
void usage_reap(struct usage *map)
{
	struct identity own = identity_own();

	for (unsigned int i = 0; i < usage_high(map); i++) {
		struct usage_slot *slot = &map->all[i];
		uint64_t tag = __atomic_load_n(&slot->tag, __ATOMIC_ACQUIRE);
		struct identity who = identity_of(slot);

		if (tag != 0 && identity_gone(&who, &own, inode))
			__atomic_compare_exchange_n(&slot->tag, &tag, 0, 0, __ATOMIC_ACQ_REL,
						    __ATOMIC_RELAXED);
	}
}

/* Another copy of the limiter in this process (dlmopen) has a slot already: both count in it. */
static int slot_of(const struct usage *map, const struct identity *own)
{
	for (unsigned int i = 0; i < usage_high(map); i++) {
		struct identity who = identity_of(&map->all[i]);

		if (map->all[i].tag != 0 && who.pid == own->pid && who.start == own->start &&
		    who.namespace == own->namespace && who.image == own->image)
			return (int)i;
	}
	return -1;
}

static int fill_slot(struct usage *map, const struct identity *own, const struct slot_use *use)
{
	for (unsigned int i = 0; i < USAGE_SLOTS; i++) {
		struct usage_slot *slot = &map->all[i];

		if (__atomic_load_n(&slot->tag, __ATOMIC_ACQUIRE) != 0)
			continue;
		__atomic_store_n(&slot->start, own->start, __ATOMIC_RELAXED);
		__atomic_store_n(&slot->namespace, own->namespace, __ATOMIC_RELAXED);
		__atomic_store_n(&slot->image, own->image, __ATOMIC_RELAXED);
		__atomic_store_n(&slot->pid, own->pid, __ATOMIC_RELAXED);
		for (int card = 0; card < CARDS_MAX; card++) {
			__atomic_store_n(&slot->cards[card].bytes,
					 __atomic_load_n(&use->held[card], __ATOMIC_RELAXED),
					 __ATOMIC_RELAXED);
			__atomic_store_n(&slot->cards[card].contexts,
					 __atomic_load_n(&use->contexts[card], __ATOMIC_RELAXED),
					 __ATOMIC_RELAXED);
		}
		if (i >= usage_high(map))
			__atomic_store_n(&map->high, i + 1, __ATOMIC_RELEASE);
		/* Last: a kill before this leaves the slot free. */
		__atomic_store_n(&slot->tag, __atomic_add_fetch(&map->tags, 1, __ATOMIC_RELAXED) &
				 0xffffffffffffu, __ATOMIC_RELEASE);
		return (int)i;
	}
	return -1;
}

static void claim(struct slot_use *use)
{
	struct identity own = identity_own();
	int fd = open_locked(), slot;

	if (fd < 0)
		return;
	slot = slot_of(mapped, &own);
	if (slot < 0) {
		usage_reap(mapped);
		slot = fill_slot(mapped, &own, use);
	}
	if (slot >= 0) {
		use->slot = (unsigned int)slot;
		__atomic_store_n(&use->tag, mapped->all[slot].tag, __ATOMIC_RELEASE);
	}
	close_locked(fd);
}

static struct usage_slot *held_slot(const struct slot_use *use)
{
	uint64_t tag = __atomic_load_n(&use->tag, __ATOMIC_ACQUIRE);
	struct usage *map = usage_map();

	if (tag == 0 || map == NULL ||
	    __atomic_load_n(&map->all[use->slot].tag, __ATOMIC_RELAXED) != tag)
		return NULL;
	return &map->all[use->slot];
}

/* A slot that somebody took from us (the file lies within the container's reach) is claimed again,
 * with what we hold. */
struct usage_slot *usage_slot(void)
{
	struct process *own = process_own();
	struct usage_slot *slot = own != NULL ? held_slot(&own->use) : NULL;

	if (slot != NULL || own == NULL)
		return slot;
	mutex_lock(&own->use.claiming);
	if (held_slot(&own->use) == NULL)
		claim(&own->use);
	slot = held_slot(&own->use);
	mutex_unlock(&own->use.claiming);
	return slot;
}

int usage_card(const uint8_t uuid[16])
{
	int fd = open_locked(), found = -1;
	struct usage *map = usage_map();
	uint32_t count;

	if (fd < 0)
		return -1;
	count = map->ncards < CARDS_MAX ? map->ncards : CARDS_MAX;
	for (uint32_t i = 0; i < count && found < 0; i++)
		if (memcmp(map->cards[i], uuid, sizeof(map->cards[i])) == 0)
			found = (int)i;
	if (found < 0 && count < CARDS_MAX) {
		memcpy(map->cards[count], uuid, sizeof(map->cards[count]));
		__atomic_store_n(&map->ncards, count + 1, __ATOMIC_RELEASE);
		found = (int)count;
	}
	close_locked(fd);
	return found;
}
