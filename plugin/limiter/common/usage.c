/* usage.c - reserve, release and sum.
 *
 * The truth is in the slots alone, each a single number that its own process changes: a kill at any
 * instruction leaves them consistent, and the dead process's slot is freed. The lock around "sum,
 * compare, add" names its holder, so that it can be taken from one that was killed. */
#define _GNU_SOURCE
#include <string.h>

#include "clock.h"
#include "liveness.h"
#include "system.h"
#include "usage_file.h"

#define SPINS 200			/* before the core is given up */
#define YIELDS 1000			/* before it is slept for */
#define PAUSE_NS 50000
#define LOOK_MS 10			/* between looks at a holder that does not let go */
#define WAIT_MS 4000			/* for a stopped holder, once; then what waits for it is refused */
#define WAIT_MOST_MS 60000		/* whoever has it meanwhile */
#define REAP_MS 100
#define MOVE_WAIT_MS 60000		/* for a checkpoint or restore of the same process */
#define MOVE_TRIES 10
#define HUGE_BYTES (1ull << 56)		/* more than any card has: somebody wrote it there */

#define ASIDE 1u

static inline void pause_core(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static bool holder_lives(const struct usage *map, uint64_t word)
{
	unsigned int slot = (unsigned int)(word & HOLDER_SLOT) - 1;

	return slot < USAGE_SLOTS &&
	       __atomic_load_n(&map->all[slot].tag, __ATOMIC_ACQUIRE) == word >> 16 &&
	       usage_slot_lives(map, slot);
}

static void wait_turn(unsigned int spins)
{
	if (spins < YIELDS)
		system_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	else
		system_sleep(PAUSE_NS);
}

/* Who waits sees by its turn that a holder has let go, and that another thread of the same process holds it since. */
static uint64_t next_turn(uint64_t word)
{
	uint64_t turn = __atomic_add_fetch(&process_own()->use.turn, 1, __ATOMIC_RELAXED);

	return word | (turn & HOLDER_TURNS) << HOLDER_TURN_SHIFT;
}

/* A holder that was waited for in vain is not waited for again, as long as it has not let go. */
static bool is_stopped(uint64_t seen)
{
	return seen == __atomic_load_n(&process_own()->use.stopped, __ATOMIC_RELAXED);
}

static bool try(struct usage *map, uint64_t *seen, uint64_t me)
{
	return __atomic_compare_exchange_n(&map->lock, seen, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* False: its holder does not let go. */
static bool take(struct usage *map, uint64_t me)
{
	uint64_t seen = 0, holder = 0, began = clock_coarse_ms(), since = began, looked = began;

	for (unsigned int spins = 0; !try(map, &seen, me); seen = 0, spins++) {
		if (spins < SPINS) {
			pause_core();
			continue;
		}
		wait_turn(spins);
		if (clock_coarse_ms() - looked < LOOK_MS)
			continue;
		looked = clock_coarse_ms();
		if (seen != holder) {
			holder = seen;
			since = looked;
		}
		if (!holder_lives(map, seen)) {
			if (try(map, &seen, me))
				return true;
		} else if (is_stopped(seen) || looked - since > WAIT_MS || looked - began > WAIT_MOST_MS) {
			__atomic_store_n(&process_own()->use.stopped, seen, __ATOMIC_RELAXED);
			return false;
		}
	}
	return true;
}

/* Nobody takes the lock from one that lives: whose it was, and still is, lets go with a plain store. */
static void give(struct usage *map, uint64_t me)
{
	if (__atomic_load_n(&map->lock, __ATOMIC_RELAXED) == me)
		__atomic_store_n(&map->lock, 0, __ATOMIC_RELEASE);
}

static bool is_aside(uint64_t word, uint64_t tag)
{
	return word == (tag << 16 | ASIDE);
}

/* A process has the slot, and what it says is on the card. */
static bool counts(const struct usage_slot *slot)
{
	uint64_t tag = __atomic_load_n(&slot->tag, __ATOMIC_ACQUIRE);

	return tag != 0 && !is_aside(__atomic_load_n(&slot->aside, __ATOMIC_ACQUIRE), tag);
}

static uint64_t bytes_of(const struct usage_slot *slot, int card)
{
	uint64_t bytes = __atomic_load_n(&slot->cards[card].bytes, __ATOMIC_RELAXED);

	return bytes < HUGE_BYTES ? bytes : HUGE_BYTES;
}

/* Of all slots that count but one; NULL: of all. */
static uint64_t sum_but(const struct usage *map, const struct usage_slot *one, int card)
{
	uint64_t total = 0;

	for (unsigned int i = 0; i < usage_high(map); i++) {
		if (&map->all[i] != one && counts(&map->all[i]))
			total += bytes_of(&map->all[i], card);
	}
	return total;
}

static uint64_t sum(const struct usage *map, int card)
{
	return sum_but(map, NULL, card);
}

static void change(struct usage_slot *slot, int card, uint64_t bytes, bool more)
{
	uint64_t *held = &process_own()->use.held[card];

	if (more) {
		__atomic_add_fetch(held, bytes, __ATOMIC_RELAXED);
		__atomic_add_fetch(&slot->cards[card].bytes, bytes, __ATOMIC_RELAXED);
	} else {
		__atomic_sub_fetch(held, bytes, __ATOMIC_RELAXED);
		__atomic_sub_fetch(&slot->cards[card].bytes, bytes, __ATOMIC_RELEASE);
	}
}

/* The plugin compares what the driver counts with the most that was counted here meanwhile. */
static void note_most(struct usage *map, int card, uint64_t total)
{
	uint64_t *most = &map->shared[card].most, known = __atomic_load_n(most, __ATOMIC_RELAXED);

	while (known < total &&
	       !__atomic_compare_exchange_n(most, &known, total, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* The same for a reservation. What this process knows of itself counts whatever somebody wrote into its slot; it is read
 * first, for whoever takes more raises it before the slot. */
static uint64_t sum_with(const struct usage *map, const struct usage_slot *own, int card)
{
	uint64_t held = __atomic_load_n(&process_own()->use.held[card], __ATOMIC_ACQUIRE);
	uint64_t bytes = bytes_of(own, card);

	return sum_but(map, own, card) + (held > bytes ? held : bytes);
}

static uint64_t holder_word(const struct usage *map, const struct usage_slot *slot)
{
	return __atomic_load_n(&slot->tag, __ATOMIC_RELAXED) << 16 | (uint64_t)(slot - map->all + 1);
}

static bool reserve_now(struct usage_slot *slot, int card, uint64_t bytes, uint64_t limit)
{
	struct usage *map = usage_map();
	uint64_t me = next_turn(holder_word(map, slot)), used;
	bool fits;

	if (!take(map, me))
		return false;
	used = sum_with(map, slot, card);
	fits = bytes <= limit && used <= limit - bytes;
	if (fits) {
		change(slot, card, bytes, true);
		note_most(map, card, used + bytes);
	}
	give(map, me);
	return fits;
}

bool usage_reserve(int card, uint64_t bytes, uint64_t limit)
{
	struct usage_slot *slot = card >= 0 ? usage_slot() : NULL;

	if (slot == NULL)
		return false;
	if (bytes == 0 || reserve_now(slot, card, bytes, limit))
		return true;
	usage_reap(usage_map());	/* before a refusal: does somebody dead still count? */
	slot = usage_slot();
	return slot != NULL && reserve_now(slot, card, bytes, limit);
}

void usage_add(int card, uint64_t bytes)
{
	struct usage_slot *slot = card >= 0 ? usage_slot() : NULL;

	if (slot == NULL)
		return;
	change(slot, card, bytes, true);
	note_most(usage_map(), card, sum(usage_map(), card));
}

void usage_release(int card, uint64_t bytes)
{
	struct usage_slot *slot = card >= 0 ? usage_slot() : NULL;

	if (slot != NULL)
		change(slot, card, bytes, false);
}

void usage_contexts(int card, int more)
{
	struct usage_slot *slot = card >= 0 ? usage_slot() : NULL;

	if (slot == NULL)
		return;
	__atomic_add_fetch(&process_own()->use.contexts[card], (uint64_t)(int64_t)more,
			   __ATOMIC_RELAXED);
	__atomic_add_fetch(&slot->cards[card].contexts, (uint64_t)(int64_t)more, __ATOMIC_RELAXED);
}

void usage_refused(int card)
{
	struct usage *map = usage_map();

	if (map == NULL && usage_slot() != NULL)	/* of an unknown card nobody has asked for the file yet */
		map = usage_map();
	if (map != NULL)
		__atomic_add_fetch(&map->refusals[card >= 0 ? card : 0], 1, __ATOMIC_RELAXED);
	else
		usage_show_mark();
}

static void reap_after(struct usage *map, uint64_t ms)
{
	struct process *own = process_own();
	uint64_t now = clock_coarse_ms();

	if (own == NULL || now - __atomic_load_n(&own->use.reaped_ms, __ATOMIC_RELAXED) < ms)
		return;
	__atomic_store_n(&own->use.reaped_ms, now, __ATOMIC_RELAXED);
	usage_reap(map);
}

uint64_t usage_total(int card)
{
	struct usage *map = usage_map();

	if (card < 0 || map == NULL)
		return 0;
	reap_after(map, REAP_MS);
	return sum(map, card);
}

unsigned int usage_processes(int card, struct usage_process *out, unsigned int room)
{
	struct identity own = identity_own();
	struct usage *map = usage_map();
	unsigned int count = 0;

	if (card < 0 || map == NULL)
		return 0;
	usage_reap(map);
	for (unsigned int i = 0; i < usage_high(map); i++) {
		const struct usage_slot *slot = &map->all[i];
		struct usage_process seen = { slot->pid, slot->cards[card].bytes };

		if (!counts(slot) ||
		    slot->namespace != own.namespace ||
		    (seen.bytes == 0 && slot->cards[card].contexts == 0))
			continue;
		if (count < room)
			out[count] = seen;
		count++;
	}
	return count;
}

unsigned int usage_sharers(int card, uint64_t looked_ms)
{
	struct usage *map = usage_map();
	unsigned int count = 0;

	if (card < 0 || map == NULL)
		return 0;
	reap_after(map, looked_ms);
	for (unsigned int i = 0; i < usage_high(map); i++) {
		const struct usage_slot *slot = &map->all[i];

		if (counts(slot) &&
		    __atomic_load_n(&slot->cards[card].contexts, __ATOMIC_RELAXED) != 0)
			count++;
	}
	return count;
}

struct bucket *usage_bucket(int card)
{
	struct usage *map = usage_map();

	return card >= 0 && map != NULL ? &map->shared[card].bucket : NULL;
}

bool usage_uuid(int card, uint8_t out[16])
{
	struct usage *map = usage_map();

	if (map == NULL || card < 0 || (unsigned int)card >= usage_cards(map))
		return false;
	memcpy(out, map->cards[card], sizeof(map->cards[card]));
	return true;
}

/* A thread's number stands for its process too, as it is assumed to do for the driver (it does for NVIDIA's tool). */
static bool is_of(const struct usage_slot *slot, int pid, const struct identity *own)
{
	return slot->namespace == own->namespace && slot->pid > 0 &&
	       (slot->pid == pid || process_has_thread(own, (pid_t)slot->pid, pid));
}

/* Of a process that has replaced itself by exec the newest. */
static struct usage_place place_of(const struct usage *map, int pid)
{
	struct usage_place found = { PLACE_NONE, 0 };
	struct identity own = identity_own();

	for (unsigned int i = 0; pid > 0 && i < usage_high(map); i++) {
		uint64_t tag = __atomic_load_n(&map->all[i].tag, __ATOMIC_ACQUIRE);

		if (tag > found.tag && is_of(&map->all[i], pid, &own) && usage_slot_lives(map, i))
			found = (struct usage_place){ (int)i, tag };
	}
	return found;
}

/* While its holder lives, which waits for the driver: that takes as long as there is much to move. False: too long. */
static bool enter(struct usage *map, uint64_t *lock, uint64_t me)
{
	uint64_t seen = 0, began = clock_coarse_ms();

	while (!__atomic_compare_exchange_n(lock, &seen, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		if (seen == 0 || !holder_lives(map, seen))
			continue;
		if (clock_coarse_ms() - began > MOVE_WAIT_MS)
			return false;
		system_sleep(LOOK_MS * 1000000);
		seen = 0;
	}
	return true;
}

static void leave(struct usage *map, const struct usage_place *place, uint64_t me)
{
	__atomic_compare_exchange_n(&map->all[place->slot].moving, &me, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Whoever waited looks again: the process may have ended meanwhile, and another one have its slot. */
struct usage_place usage_move_begin(int pid)
{
	struct usage_place unknown = { PLACE_UNKNOWN, 0 }, place, now;
	struct usage_slot *own = usage_slot();
	struct usage *map = usage_map();

	if (own == NULL)
		return unknown;
	for (int tries = 0; tries < MOVE_TRIES; tries++) {
		place = place_of(map, pid);
		if (place.slot < 0)
			return place;
		if (!enter(map, &map->all[place.slot].moving, holder_word(map, own)))
			return unknown;
		now = place_of(map, pid);
		if (now.slot == place.slot && now.tag == place.tag)
			return place;
		leave(map, &place, holder_word(map, own));
	}
	return unknown;
}

void usage_move_end(const struct usage_place *place)
{
	struct usage_slot *own = usage_slot();

	if (place->slot >= 0 && own != NULL)
		leave(usage_map(), place, holder_word(usage_map(), own));
}

void usage_put_aside(const struct usage_place *place)
{
	if (place->slot >= 0)
		__atomic_store_n(&usage_map()->all[place->slot].aside, place->tag << 16 | ASIDE, __ATOMIC_RELEASE);
}

bool usage_is_aside(const struct usage_place *place)
{
	return place->slot >= 0 &&
	       is_aside(__atomic_load_n(&usage_map()->all[place->slot].aside, __ATOMIC_ACQUIRE), place->tag);
}

/* With the lock. What this process has counts whatever stands in its slot, but where that is aside as well. */
static uint64_t sum_after(const struct usage *map, const struct usage_slot *own, const struct usage_slot *back, int card)
{
	if (own == back)
		return sum_with(map, own, card);
	return (counts(own) ? sum_with(map, own, card) : sum_but(map, own, card)) + bytes_of(back, card);
}

/* With the lock. The card that has no room for what is put aside; -1: all have. */
static int lacking(const struct usage *map, const struct usage_slot *own, const struct usage_slot *back,
		   const uint64_t rooms[CARDS_MAX])
{
	for (int card = 0; card < CARDS_MAX; card++)
		if (bytes_of(back, card) != 0 && sum_after(map, own, back, card) > rooms[card])
			return card;
	return -1;
}

/* The card that has no room; -1: it counts again. */
static int take_back_now(const struct usage_place *place, const uint64_t rooms[CARDS_MAX])
{
	struct usage_slot *own = usage_slot(), *slot;
	struct usage *map = usage_map();
	uint64_t me;
	int card;

	if (own == NULL)
		return 0;
	me = next_turn(holder_word(map, own));
	if (!take(map, me))
		return 0;
	slot = &map->all[place->slot];
	card = lacking(map, own, slot, rooms);
	if (card < 0)
		__atomic_store_n(&slot->aside, 0, __ATOMIC_RELEASE);
	for (int each = 0; card < 0 && each < CARDS_MAX; each++)
		note_most(map, each, sum(map, each));
	give(map, me);
	return card;
}

bool usage_take_back(const struct usage_place *place, const uint64_t rooms[CARDS_MAX], int *card)
{
	*card = place->slot == PLACE_UNKNOWN ? 0 : -1;
	for (int tries = 0; tries < 2 && usage_is_aside(place); tries++) {
		*card = take_back_now(place, rooms);
		if (*card >= 0)
			usage_reap(usage_map());	/* before a refusal, as in usage_reserve */
	}
	return *card < 0;
}
