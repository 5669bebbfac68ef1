/* ledger.c - a hash table with open addressing; each call is one short section under a mutex.
 *
 * Its memory is the kernel's: a program that looks for leaks at its end finds none of ours. */

#define _GNU_SOURCE
#include "ledger.h"
#include "system.h"

#define FIRST_ROOM 1024			/* a power of two */

static struct ledger *lock_own(void)
{
	struct process *own = process_own();

	if (own == NULL)
		return NULL;
	mutex_lock(&own->ledger.mutex);
	return &own->ledger;
}

static void unlock(struct ledger *ledger)
{
	mutex_unlock(&ledger->mutex);
}

static unsigned int hash(enum ledger_kind kind, uint64_t key)
{
	return (unsigned int)((key ^ (uint64_t)kind << 60) * 0x9e3779b97f4a7c15u >> 32);
}

static unsigned int place(const struct ledger *ledger, enum ledger_kind kind, uint64_t key)
{
	return hash(kind, key) & (ledger->room - 1);
}

static uint32_t *mark(struct ledger *ledger, enum ledger_kind kind, uint64_t key)
{
	return &ledger->marks[hash(kind, key) & (LEDGER_MARKS - 1)];
}

/* Of a thing that is not there nobody waits for the mutex: whoever asks for one that is has had it since
 * after it was put. */
static struct ledger *lock_if_marked(enum ledger_kind kind, uint64_t key)
{
	struct process *own = process_own();

	if (own == NULL || __atomic_load_n(mark(&own->ledger, kind, key), __ATOMIC_RELAXED) == 0)
		return NULL;
	mutex_lock(&own->ledger.mutex);
	return &own->ledger;
}

/* The entry, or the free place where it would stand. */
static struct ledger_entry *seek(const struct ledger *ledger, enum ledger_kind kind, uint64_t key)
{
	unsigned int at = place(ledger, kind, key);

	while (ledger->entries[at].kind != LEDGER_NONE &&
	       (ledger->entries[at].kind != kind || ledger->entries[at].key != key))
		at = (at + 1) & (ledger->room - 1);
	return &ledger->entries[at];
}

static struct ledger_entry *find(const struct ledger *ledger, enum ledger_kind kind, uint64_t key)
{
	struct ledger_entry *entry;

	if (ledger->room == 0)
		return NULL;
	entry = seek(ledger, kind, key);
	return entry->kind != LEDGER_NONE ? entry : NULL;
}

static size_t bytes_of(const struct ledger *ledger)
{
	return ledger->room * sizeof(*ledger->entries);
}

static bool grow(struct ledger *ledger)
{
	struct ledger old = *ledger;

	if (old.room != 0 && old.count < old.room / 2)
		return true;
	ledger->room = old.room != 0 ? old.room * 2 : FIRST_ROOM;
	ledger->entries = system_map(bytes_of(ledger), -1);
	if (ledger->entries == NULL) {
		ledger->entries = old.entries;
		ledger->room = old.room;
		return old.count + 1 < old.room;
	}
	for (unsigned int i = 0; i < old.room; i++)
		if (old.entries[i].kind != LEDGER_NONE)
			*seek(ledger, old.entries[i].kind, old.entries[i].key) = old.entries[i];
	if (old.room != 0)
		system_unmap(old.entries, bytes_of(&old));
	return true;
}

/* Entries behind the removed one move up, so that a search never ends early at its place. */
static void drop(struct ledger *ledger, struct ledger_entry *entry)
{
	unsigned int mask = ledger->room - 1, hole = (unsigned int)(entry - ledger->entries), at = hole;
	uint32_t *marks = mark(ledger, entry->kind, entry->key);

	__atomic_store_n(marks, *marks - 1, __ATOMIC_RELAXED);
	ledger->count--;
	for (;;) {
		struct ledger_entry *next;
		unsigned int home;

		at = (at + 1) & mask;
		next = &ledger->entries[at];
		if (next->kind == LEDGER_NONE)
			break;
		home = place(ledger, next->kind, next->key);
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		ledger->entries[hole] = *next;
		hole = at;
	}
	ledger->entries[hole].kind = LEDGER_NONE;
}

bool ledger_put(struct ledger_entry entry)
{
	struct ledger *ledger = lock_own();
	struct ledger_entry *at;
	bool fits;

	if (ledger == NULL)
		return false;
	fits = grow(ledger);
	if (fits) {
		at = seek(ledger, entry.kind, entry.key);
		if (at->kind == LEDGER_NONE) {
			uint32_t *marks = mark(ledger, entry.kind, entry.key);

			__atomic_store_n(marks, *marks + 1, __ATOMIC_RELAXED);
			ledger->count++;
		}
		*at = entry;
	}
	unlock(ledger);
	return fits;
}

bool ledger_take(enum ledger_kind kind, uint64_t key, struct ledger_entry *out)
{
	struct ledger *ledger = lock_if_marked(kind, key);
	struct ledger_entry *entry;

	if (ledger == NULL)
		return false;
	entry = find(ledger, kind, key);
	if (entry != NULL) {
		*out = *entry;
		drop(ledger, entry);
	}
	unlock(ledger);
	return entry != NULL;
}

bool ledger_get(enum ledger_kind kind, uint64_t key, struct ledger_entry *out)
{
	struct ledger *ledger = lock_if_marked(kind, key);
	struct ledger_entry *entry;

	if (ledger == NULL)
		return false;
	entry = find(ledger, kind, key);
	if (entry != NULL)
		*out = *entry;
	unlock(ledger);
	return entry != NULL;
}

bool ledger_set(enum ledger_kind kind, uint64_t key, uint64_t bytes, struct ledger_entry *out)
{
	struct ledger *ledger = lock_own();
	struct ledger_entry *entry;

	if (ledger == NULL)
		return false;
	entry = find(ledger, kind, key);
	if (entry != NULL) {
		*out = *entry;
		entry->bytes = bytes;
	}
	unlock(ledger);
	return entry != NULL;
}

bool ledger_next(enum ledger_kind kind, unsigned int *at, struct ledger_entry *out)
{
	struct ledger *ledger = lock_own();
	bool found = false;

	if (ledger == NULL)
		return false;
	for (; *at < ledger->room && !found; ++*at) {
		if (ledger->entries[*at].kind != kind)
			continue;
		*out = ledger->entries[*at];
		found = true;
	}
	unlock(ledger);
	return found;
}

bool ledger_take_of(enum ledger_kind kind, uint64_t of, struct ledger_entry *out)
{
	struct ledger *ledger = lock_own();
	bool found = false;

	if (ledger == NULL)
		return false;
	for (unsigned int i = 0; i < ledger->room && !found; i++) {
		struct ledger_entry *entry = &ledger->entries[i];

		if (entry->kind != kind || entry->of != of)
			continue;
		*out = *entry;
		drop(ledger, entry);
		found = true;
	}
	unlock(ledger);
	return found;
}

void ledger_move_of(enum ledger_kind kind, uint64_t from, uint64_t to)
{
	struct ledger *ledger = lock_own();

	if (ledger == NULL)
		return;
	for (unsigned int i = 0; i < ledger->room; i++)
		if (ledger->entries[i].kind == kind && ledger->entries[i].of == from)
			ledger->entries[i].of = to;
	unlock(ledger);
}

bool ledger_has(enum ledger_kind kind, uint64_t key)
{
	struct ledger_entry entry;

	return ledger_get(kind, key, &entry);
}

int ledger_refer(enum ledger_kind kind, uint64_t key, int change)
{
	struct ledger *ledger = lock_if_marked(kind, key);
	struct ledger_entry *entry;
	int left = -1;

	if (ledger == NULL)
		return left;
	entry = find(ledger, kind, key);
	if (entry != NULL) {
		entry->references += (unsigned int)change;
		left = (int)entry->references;
	}
	unlock(ledger);
	return left;
}

/* What drop() moves up to a place behind this one was seen already, or is seen at this very place. */
void ledger_take_context(uint64_t context, void (*each)(const struct ledger_entry *))
{
	struct ledger *ledger = lock_own();

	if (ledger == NULL)
		return;
	for (unsigned int i = 0; i < ledger->room; i++) {
		while (ledger->entries[i].kind != LEDGER_NONE && ledger->entries[i].of == context &&
		       ledger->entries[i].kind < LEDGER_BACKING) {
			struct ledger_entry entry = ledger->entries[i];

			drop(ledger, &ledger->entries[i]);
			each(&entry);
		}
	}
	unlock(ledger);
}

unsigned int ledger_mapped(uint64_t at, uint64_t bytes, struct ledger_entry *out, unsigned int room)
{
	struct ledger *ledger = lock_own();
	unsigned int count = 0;

	if (ledger == NULL)
		return 0;
	for (unsigned int i = 0; i < ledger->room; i++) {
		const struct ledger_entry *entry = &ledger->entries[i];

		if (entry->kind != LEDGER_MAPPING || (entry->key - at >= bytes && at - entry->key >= entry->bytes))
			continue;
		if (count < room)
			out[count] = *entry;
		count++;
	}
	unlock(ledger);
	return count;
}

bool ledger_take_mapping(uint64_t from, uint64_t bytes, struct ledger_entry *out)
{
	struct ledger *ledger = lock_own();
	bool found = false;

	if (ledger == NULL)
		return false;
	for (unsigned int i = 0; i < ledger->room && !found; i++) {
		struct ledger_entry *entry = &ledger->entries[i];

		if (entry->kind != LEDGER_MAPPING || entry->key - from >= bytes)
			continue;
		*out = *entry;
		drop(ledger, entry);
		found = true;
	}
	unlock(ledger);
	return found;
}
