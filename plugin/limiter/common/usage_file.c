/* usage_file.c - maps the usage file, and claims and frees slots in it.
 *
 * A slot is claimed under flock() on a description of its own: it excludes another copy of the limiter
 * in this process too, and the kernel drops it with its process. The file is not kept open: nothing of
 * ours stands among the program's descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/file.h>

#include "liveness.h"
#include "settings.h"
#include "system.h"
#include "usage_file.h"

#define LOCK_WAIT_NS 2000000000u	/* for a holder that does not let go */
#define PAUSE_MIN_NS 20000u
#define PAUSE_MAX_NS 1000000u

_Static_assert(sizeof(LIMITER_VERSION) <= USAGE_BUILD, "the version fits into the usage file");

static struct usage *mapped;
static uint64_t asked[USAGE_TABLES][2];	/* private tables: the runtime asks for them before the file is mapped */
static uint64_t inode;			/* of the file; set before it is mapped for others */
static struct { uint64_t device, inode, folder; } file;	/* as the kernel tells of the file itself; likewise */

struct usage *usage_map(void)
{
	return __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
}

unsigned int usage_high(const struct usage *map)
{
	uint32_t high = __atomic_load_n(&map->high, __ATOMIC_ACQUIRE);

	return high < USAGE_SLOTS ? high : USAGE_SLOTS;
}

static long change_lock(int fd, int how)
{
	return system_call(SYS_flock, fd, how, 0, 0, 0, 0);
}

static bool lock_file(int fd)
{
	uint64_t waited = 0, pause = PAUSE_MIN_NS;
	long ret;

	while ((ret = change_lock(fd, LOCK_EX | LOCK_NB)) != 0) {
		if ((ret != -EWOULDBLOCK && ret != -EINTR) || waited > LOCK_WAIT_NS)
			return false;
		system_sleep((long)pause);
		waited += pause;
		pause = pause < PAUSE_MAX_NS / 2 ? 2 * pause : PAUSE_MAX_NS;
	}
	return true;
}

static bool is_ours(const struct usage *seen)
{
	return __atomic_load_n(&seen->magic, __ATOMIC_ACQUIRE) == USAGE_MAGIC &&
	       seen->version == USAGE_VERSION && seen->size == sizeof(*seen) && seen->slots == USAGE_SLOTS;
}

/* Nobody else is here: the file is locked. */
static bool begin_file(struct usage *seen)
{
	if (seen->magic == 0) {
		seen->version = USAGE_VERSION;
		seen->size = sizeof(*seen);
		seen->slots = USAGE_SLOTS;
		memcpy(seen->build, LIMITER_VERSION, sizeof(LIMITER_VERSION));
		__atomic_store_n(&seen->magic, USAGE_MAGIC, __ATOMIC_RELEASE);
	}
	return is_ours(seen);
}

/* A child that another thread forks meanwhile has the description as well: unlock, then close. */
static void close_locked(int fd)
{
	change_lock(fd, LOCK_UN);
	system_close(fd);
}

/* Who stops between its two stores leaves half an id behind, which nobody takes for one of those that there are. */
static void note_table(uint64_t tables[USAGE_TABLES][2], const uint64_t id[2])
{
	for (unsigned int i = 0; i < USAGE_TABLES; i++) {
		uint64_t *known = tables[i], first = 0;

		if (__atomic_compare_exchange_n(&known[0], &first, id[0], 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
			__atomic_store_n(&known[1], id[1], __ATOMIC_SEQ_CST);
			return;
		}
		if (first == id[0] && __atomic_load_n(&known[1], __ATOMIC_RELAXED) == id[1])
			return;
	}
}

static void note_tables(struct usage *map)
{
	for (unsigned int i = 0; i < USAGE_TABLES; i++) {
		uint64_t id[2] = { __atomic_load_n(&asked[i][0], __ATOMIC_SEQ_CST),
				   __atomic_load_n(&asked[i][1], __ATOMIC_SEQ_CST) };

		if (id[0] != 0)
			note_table(map->tables, id);
	}
}

static void publish(struct usage *seen, const struct stat *st)
{
	struct usage *none = NULL;
	struct stat folder = { 0 };

	__atomic_store_n(&inode, identity_mapped(st->st_ino), __ATOMIC_RELAXED);
	system_stat(setting_folder(), &folder);
	__atomic_store_n(&file.folder, folder.st_ino, __ATOMIC_RELAXED);
	__atomic_store_n(&file.device, st->st_dev, __ATOMIC_RELAXED);
	__atomic_store_n(&file.inode, st->st_ino, __ATOMIC_RELAXED);
	if (!__atomic_compare_exchange_n(&mapped, &none, seen, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		system_unmap(seen, sizeof(*seen));	/* another thread was faster */
	else
		note_tables(seen);
}

/* Of that folder a container writes to no other file. One that was replaced has no name any more. */
bool usage_is_beside(const struct stat *st)
{
	struct stat folder;

	if (usage_map() == NULL)
		return true;
	return st->st_dev == __atomic_load_n(&file.device, __ATOMIC_RELAXED) &&
	       st->st_ino != __atomic_load_n(&file.inode, __ATOMIC_RELAXED) && st->st_nlink != 0 &&
	       system_stat(setting_folder(), &folder) == 0 &&
	       folder.st_ino == __atomic_load_n(&file.folder, __ATOMIC_RELAXED);
}

/* All that takes long is done before the lock, for which all programs of the container may wait. */
static bool map_file(int fd)
{
	struct usage *seen;
	struct stat st;
	bool ours;

	if (usage_map() != NULL)
		return true;
	if (system_fstat(fd, &st) < 0 || st.st_size != sizeof(*seen))
		return false;
	seen = system_map(sizeof(*seen), fd);
	if (seen == NULL)
		return false;
	ours = is_ours(seen);
	if (!ours && lock_file(fd)) {
		ours = begin_file(seen);
		change_lock(fd, LOCK_UN);
	}
	if (ours)
		publish(seen, &st);
	else
		system_unmap(seen, sizeof(*seen));
	return ours;
}

/* The file, mapped. -1: it cannot be used. */
static int open_mapped(void)
{
	char path[SETTING_MAX + 16];
	int fd;

	if (!setting_path(path, sizeof(path), setting_folder(), "usage"))
		return -1;
	fd = system_open(path, O_RDWR);
	if (fd < 0)
		usage_unwritable(path, fd);
	if (fd >= 0 && !map_file(fd)) {
		system_close(fd);
		return -1;
	}
	return fd;
}

/* The file, mapped and locked. -1: it cannot be used. */
static int open_locked(void)
{
	int fd = open_mapped();

	if (fd >= 0 && !lock_file(fd)) {
		system_close(fd);
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

/* With the file locked, so that none is claimed: free slots at the end are not looked at any more. */
static void trim(struct usage *map)
{
	unsigned int high = usage_high(map), used = high;

	while (used > 0 && __atomic_load_n(&map->all[used - 1].tag, __ATOMIC_ACQUIRE) == 0)
		used--;
	if (used < high)
		__atomic_store_n(&map->high, used, __ATOMIC_RELEASE);
}

/* The same by who frees slots, unless somebody claims one just now: who does trims as well. */
static void try_trim(struct usage *map)
{
	int fd = open_mapped();

	if (fd < 0)
		return;
	if (change_lock(fd, LOCK_EX | LOCK_NB) == 0) {
		trim(map);
		change_lock(fd, LOCK_UN);
	}
	system_close(fd);
}

/* A tag that was read before the identity and is still there after it: they belong together. */
void usage_reap(struct usage *map)
{
	struct identity own = identity_own();
	bool freed = false;

	for (unsigned int i = 0; i < usage_high(map); i++) {
		struct usage_slot *slot = &map->all[i];
		uint64_t tag = __atomic_load_n(&slot->tag, __ATOMIC_ACQUIRE);
		struct identity who = identity_of(slot);

		if (tag != 0 && identity_gone(&who, &own, inode) &&
		    __atomic_compare_exchange_n(&slot->tag, &tag, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			freed = true;
	}
	if (freed)
		try_trim(map);
}

/* Another copy of the limiter in this process (dlmopen) has a slot already: both count in it. What it had before an
 * exec is over: others cannot tell that slot from its own, so it frees it itself. */
static int slot_of(struct usage *map, const struct identity *own)
{
	int found = -1;

	for (unsigned int i = 0; i < usage_high(map); i++) {
		uint64_t tag = __atomic_load_n(&map->all[i].tag, __ATOMIC_ACQUIRE);
		struct identity who = identity_of(&map->all[i]);

		if (tag == 0 || who.pid != own->pid || who.start != own->start || who.namespace != own->namespace)
			continue;
		if (who.image == own->image)
			found = (int)i;
		else if (identity_gone(&who, own, inode))
			__atomic_compare_exchange_n(&map->all[i].tag, &tag, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
	return found;
}

/* In a free slot below an end; -1: there is none. */
static int fill_slot(struct usage *map, const struct identity *own, const struct slot_use *use,
		     unsigned int end)
{
	for (unsigned int i = 0; i < end; i++) {
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

/* To look who lives costs some 50 us for each: when many begin at once, not each looks at all the others,
 * only one whenever the slots in use have doubled. */
static int take_slot(struct usage *map, const struct identity *own, const struct slot_use *use)
{
	unsigned int high = usage_high(map);
	int slot = fill_slot(map, own, use, high);

	if (slot >= 0)
		return slot;
	if ((high & (high - 1)) == 0)
		usage_reap(map);
	return fill_slot(map, own, use, USAGE_SLOTS);
}

static void claim(struct slot_use *use)
{
	struct identity own = identity_own();
	int fd = open_locked(), slot;

	if (fd < 0)
		return;
	slot = slot_of(mapped, &own);
	if (slot < 0)
		slot = take_slot(mapped, &own, use);
	trim(mapped);
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

static int find_card(const struct usage *map, const uint8_t uuid[16], uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (memcmp(map->cards[i], uuid, sizeof(map->cards[i])) == 0)
			return (int)i;
	return -1;
}

unsigned int usage_cards(const struct usage *map)
{
	uint32_t count = __atomic_load_n(&map->ncards, __ATOMIC_ACQUIRE);

	return count < CARDS_MAX ? count : CARDS_MAX;
}

static int add_card(struct usage *map, const uint8_t uuid[16])
{
	uint32_t count = usage_cards(map);
	int found = find_card(map, uuid, count);

	if (found >= 0 || count == CARDS_MAX)
		return found;
	memcpy(map->cards[count], uuid, sizeof(map->cards[count]));
	__atomic_store_n(&map->ncards, count + 1, __ATOMIC_RELEASE);
	return (int)count;
}

/* Only the container's first program writes the card down; the others need no lock to find it. */
int usage_card(const uint8_t uuid[16])
{
	int fd = open_mapped(), found;
	struct usage *map = usage_map();

	if (fd < 0)
		return -1;
	found = find_card(map, uuid, usage_cards(map));
	if (found < 0 && lock_file(fd)) {
		found = add_card(map, uuid);
		change_lock(fd, LOCK_UN);
	}
	system_close(fd);
	return found;
}

void usage_table(const uint8_t id[16])
{
	struct usage *map;
	uint64_t words[2];

	memcpy(words, id, sizeof(words));
	if (words[0] == 0)
		return;
	note_table(asked, words);
	map = usage_map();
	if (map != NULL)
		note_table(map->tables, words);
}
