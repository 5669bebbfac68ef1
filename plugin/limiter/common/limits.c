/* limits.c - keeps the limits of this process's cards current. */
#define _GNU_SOURCE
#include <string.h>

#include "clock.h"
#include "limits.h"
#include "settings.h"
#include "system.h"
#include "usage.h"

#define LOOK_MS 200			/* a change is followed within a second */
#define TRUST_MS 1000			/* what was read counts for so long after it was last known to be current */
#define FILE_MAX 8192
#define SHARERS_MS 5000			/* to look who lives takes long; where it matters little it may be out of date */
#define CORE_UNKNOWN 1			/* percent: the least that there is */
#define WHOLE 1000			/* permille */
#define CHARGE_LEAST 10
#define CHARGE_MAX_MS 5000		/* a moment further away is none that the plugin wrote */

/* Of a card of which nothing is known: no bytes, and the least of its time. */
static struct card unknown = { .index = -1, .core = CORE_UNKNOWN };

static void apply(struct limits *limits, struct card *card)
{
	uint64_t memory = 0, context = 0, uncounted = 0, until = 0;
	unsigned int core = CORE_UNKNOWN, mps = 0, charge = 0;

	/* Without a number in the usage file it cannot be counted, whatever the limits say. */
	for (unsigned int i = 0; card_index(card) >= 0 && i < limits->count; i++) {
		if (memcmp(limits->entries[i].uuid, card->uuid, sizeof(card->uuid)) != 0)
			continue;
		memory = limits->entries[i].memory_bytes;
		context = limits->entries[i].context_bytes;
		uncounted = limits->entries[i].uncounted_bytes;
		core = limits->entries[i].core;
		mps = limits->entries[i].mps;
		charge = limits->entries[i].charge;
		until = limits->entries[i].charge_until_ms;
	}
	__atomic_store_n(&card->memory_bytes, memory, __ATOMIC_RELAXED);
	__atomic_store_n(&card->context_bytes, context, __ATOMIC_RELAXED);
	__atomic_store_n(&card->uncounted_bytes, uncounted, __ATOMIC_RELAXED);
	__atomic_store_n(&card->core, core, __ATOMIC_RELAXED);
	__atomic_store_n(&card->mps, mps, __ATOMIC_RELAXED);
	__atomic_store_n(&card->charge_until_ms, until, __ATOMIC_RELAXED);
	__atomic_store_n(&card->charge, charge, __ATOMIC_RELAXED);
}

static uint64_t changed_ns(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;
}

static bool is_read(const struct limits *limits, const struct stat *st)
{
	return st->st_ino == limits->inode && (uint64_t)st->st_size == limits->size &&
	       changed_ns(st) == limits->changed_ns;
}

/* False: it cannot be read. */
static bool load(struct limits *limits, int fd, const struct stat *st)
{
	struct limit read_limits[CARDS_MAX];
	char text[FILE_MAX];
	long got = system_read(fd, text, sizeof(text) - 1);
	int count;

	if (got < 0)
		return false;
	text[got] = '\0';
	count = got < (long)sizeof(text) - 1 ? limits_parse(text, read_limits, CARDS_MAX) : -1;
	if (count < 0)
		return true;		/* it makes no sense */
	memcpy(limits->entries, read_limits, sizeof(read_limits[0]) * (unsigned int)count);
	limits->count = (unsigned int)count;
	limits->inode = st->st_ino;
	limits->changed_ns = changed_ns(st);
	limits->size = (uint64_t)st->st_size;
	for (unsigned int i = 0; i < limits->ncards; i++)
		apply(limits, &limits->cards[i]);
	return true;
}

/* A file of which a name was just taken, as the plugin replaces it, is looked at once more. */
static bool is_plugins(const char *path, struct stat *st)
{
	return usage_is_beside(st) || (system_stat(path, st) == 0 && usage_is_beside(st));
}

/* To see that it is the file that was read takes no descriptor: a program may have none left. What is no file of the
 * plugin's is not waited for. */
static bool current(struct limits *limits)
{
	char path[SETTING_MAX + 16];
	bool done = false;
	struct stat st;
	int fd;

	if (!setting_path(path, sizeof(path), setting_folder(), "limits") || system_stat(path, &st) != 0)
		return false;
	if (!is_plugins(path, &st)) {
		limits->current_ms = 0;
		return false;
	}
	if (is_read(limits, &st))
		return true;
	fd = system_open(path, O_RDONLY);
	if (fd < 0)
		return false;
	if (system_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && usage_is_beside(&st))
		done = is_read(limits, &st) || load(limits, fd, &st);
	system_close(fd);
	return done;
}

/* A process could take its own descriptors, or its root folder, and would have for ever what it had then; or lay a
 * file of its own, or one that was replaced, over the plugin's. */
static void look(struct limits *limits)
{
	bool is_current = clock_renew() && current(limits);
	uint64_t now = clock_coarse_ms();

	if (is_current)
		limits->current_ms = now;
	__atomic_store_n(&limits->unread, now - limits->current_ms > TRUST_MS, __ATOMIC_RELAXED);
}

static void count_sharers(struct limits *limits)
{
	for (unsigned int i = 0; i < limits->ncards; i++) {
		struct card *card = &limits->cards[i];

		bool exactly = __atomic_load_n(&card->sm_percent, __ATOMIC_RELAXED) != 0;

		if (exactly || __atomic_load_n(&card->core, __ATOMIC_RELAXED) != 0)
			__atomic_store_n(&card->sharers, usage_sharers(card_index(card), exactly ? 0 : SHARERS_MS),
					 __ATOMIC_RELAXED);
	}
}

/* The file may have been locked, or the process without a descriptor, when the card was first asked for. */
static void count_late(struct limits *limits)
{
	for (unsigned int i = 0; i < limits->ncards; i++) {
		struct card *card = &limits->cards[i];

		if (card_index(card) >= 0)
			continue;
		__atomic_store_n(&card->index, usage_card(card->uuid), __ATOMIC_RELAXED);
		apply(limits, card);
	}
}

static void refresh(void)
{
	struct process *own = process_own();
	uint64_t now = clock_coarse_ms(), looked;
	struct limits *limits;

	if (own == NULL)
		return;
	limits = &own->limits;
	looked = __atomic_load_n(&limits->looked_ms, __ATOMIC_RELAXED);
	if (now - looked < LOOK_MS ||
	    !__atomic_compare_exchange_n(&limits->looked_ms, &looked, now, 0, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	mutex_lock(&limits->mutex);
	look(limits);
	count_late(limits);
	count_sharers(limits);
	mutex_unlock(&limits->mutex);
}

static struct card *find(struct limits *limits, const uint8_t uuid[16])
{
	unsigned int count = __atomic_load_n(&limits->ncards, __ATOMIC_ACQUIRE);

	for (unsigned int i = 0; i < count; i++)
		if (memcmp(limits->cards[i].uuid, uuid, 16) == 0)
			return &limits->cards[i];
	return NULL;
}

struct card *limits_card(const uint8_t uuid[16])
{
	struct process *own = process_own();
	struct card *card = own != NULL ? find(&own->limits, uuid) : &unknown;
	struct limits *limits;

	if (card != NULL) {
		if (card_index(card) < 0)
			refresh();
		return card;
	}
	limits = &own->limits;
	mutex_lock(&limits->mutex);
	card = find(limits, uuid);
	if (card == NULL && limits->ncards < CARDS_MAX) {
		card = &limits->cards[limits->ncards];
		memcpy(card->uuid, uuid, sizeof(card->uuid));
		__atomic_store_n(&card->index, usage_card(uuid), __ATOMIC_RELAXED);
		look(limits);
		apply(limits, card);
		__atomic_store_n(&limits->ncards, limits->ncards + 1, __ATOMIC_RELEASE);
	}
	mutex_unlock(&limits->mutex);
	return card != NULL ? card : &unknown;
}

struct card *limits_unknown(void)
{
	return &unknown;
}

uint64_t limits_memory(const struct card *card)
{
	refresh();
	return __atomic_load_n(&card->memory_bytes, __ATOMIC_RELAXED);
}

uint64_t limits_uncounted(const struct card *card)
{
	refresh();
	return __atomic_load_n(&card->uncounted_bytes, __ATOMIC_RELAXED);
}

/* Nobody knows what the plugin gives now. */
static bool unread(void)
{
	struct process *own = process_own();

	return own == NULL || __atomic_load_n(&own->limits.unread, __ATOMIC_RELAXED);
}

uint64_t limits_room(const struct card *card)
{
	uint64_t memory = limits_memory(card);
	uint64_t uncounted = __atomic_load_n(&card->uncounted_bytes, __ATOMIC_RELAXED);

	if (unread())
		return 0;
	return memory > uncounted ? memory - uncounted : 0;
}

uint64_t limits_context(const struct card *card)
{
	refresh();
	return __atomic_load_n(&card->context_bytes, __ATOMIC_RELAXED);
}

unsigned int limits_core(const struct card *card)
{
	unsigned int core, given, sharers, time;

	refresh();
	core = unread() ? CORE_UNKNOWN : __atomic_load_n(&card->core, __ATOMIC_RELAXED);
	given = __atomic_load_n(&card->sm_percent, __ATOMIC_RELAXED);
	if (core == 0 || given == 0 || !__atomic_load_n(&card->mps, __ATOMIC_RELAXED))
		return core;
	sharers = __atomic_load_n(&card->sharers, __ATOMIC_RELAXED);
	time = core * 100 / (given * (sharers > 1 ? sharers : 1));
	return time >= 100 ? 0 : time > 1 ? time : 1;
}

unsigned int limits_mps_percent(void)
{
	struct process *own = process_own();
	struct limits *limits;
	unsigned int least = 0;

	if (own == NULL)
		return 0;
	limits = &own->limits;
	mutex_lock(&limits->mutex);
	look(limits);
	for (unsigned int i = 0; i < limits->count; i++) {
		const struct limit *entry = &limits->entries[i];

		if (entry->mps && entry->core != 0 && (least == 0 || entry->core < least))
			least = entry->core;
	}
	mutex_unlock(&limits->mutex);
	return least;
}

bool limits_corrected(const struct card *card)
{
	uint64_t until = __atomic_load_n(&card->charge_until_ms, __ATOMIC_RELAXED), now;

	if (until == 0)
		return false;
	now = clock_coarse_ms();
	return until > now && until - now <= CHARGE_MAX_MS;
}

unsigned int limits_charge(const struct card *card)
{
	unsigned int charge = __atomic_load_n(&card->charge, __ATOMIC_RELAXED);

	if (charge == 0 || !limits_corrected(card))
		return WHOLE;
	return charge > CHARGE_LEAST ? charge : CHARGE_LEAST;
}
