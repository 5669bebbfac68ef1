/* usage.h - the file in which the processes of a container count the card memory that they hold,
 * and the GPU time that they took. */
#ifndef EDGEGPU_LIMITER_USAGE_H
#define EDGEGPU_LIMITER_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "process.h"

#define USAGE_MAGIC 0x45474c4du
#define USAGE_VERSION 5			/* another one with each change of what follows: README.md, `form` */
#define USAGE_SLOTS 512
#define USAGE_BUILD 16
#define USAGE_TABLES 32
#define HOLDER_SLOT 1023u		/* the bits of `lock` that have the slot, */
#define HOLDER_TURN_SHIFT 10		/* and where those begin that move with each turn of a process */
#define HOLDER_TURNS 63u

struct usage_card {
	uint64_t bytes;
	uint64_t contexts;
};

struct usage_slot {
	uint64_t tag;			/* 0: free; else drawn anew with each claim */
	uint64_t start, namespace, image;
	int64_t pid;
	uint64_t moving;		/* whoever puts it aside or takes it back: as `lock` below; atomic */
	uint64_t aside;			/* tag << 16 | 1: a checkpoint has put it aside, and it does not count; atomic */
	struct usage_card cards[CARDS_MAX];
};

/* What is known of a card beside the slots, a cache line for each. */
struct usage_shared {
	struct bucket bucket;		/* its GPU time */
	uint64_t most;			/* bytes that were counted at once since the plugin set this to 0; atomic */
};

/* All zeros is a file that nobody has used yet. Its writers do not trust what they read in it. */
struct usage {
	uint32_t magic, version, size, slots;
	uint64_t lock;			/* 0, or whose: tag << 16 | turn << HOLDER_TURN_SHIFT | slot + 1 */
	uint64_t tags;			/* the last tag that was drawn */
	uint32_t high;			/* slots below it may be taken */
	uint32_t ncards;
	uint8_t cards[CARDS_MAX][16];	/* uuids */
	uint64_t refusals[CARDS_MAX];	/* requests beyond the limit; for the plugin to tell */
	char build[USAGE_BUILD];	/* the version of the limiter that began the file; likewise */
	struct usage_shared shared[CARDS_MAX];
	struct usage_slot all[USAGE_SLOTS];
	uint64_t tables[USAGE_TABLES][2];	/* ids of the driver's private tables that were asked for; each atomic */
};

struct usage_process {
	int64_t pid;
	uint64_t bytes;
};

/* Does a file in our folder lie beside the mapped usage file: in the folder that this was opened in, of its file system, and
 * not replaced since? True as well while none is mapped: then nothing is given. */
bool usage_is_beside(const struct stat *st);

/* The number of a card in the file; -1: the file cannot be used, or holds as many as it can. */
int usage_card(const uint8_t uuid[16]);

/* Count bytes if all of the container stay within the limit. False: they would not, or this process
 * cannot be counted (no file, no slot). Cards below 0 have no room. */
bool usage_reserve(int card, uint64_t bytes, uint64_t limit);
void usage_add(int card, uint64_t bytes);	/* the same for what is held already */
void usage_release(int card, uint64_t bytes);
void usage_contexts(int card, int change);
/* A program was told that there is no memory. Of a card without a number it stands at the first one. */
void usage_refused(int card);

/* A program asked for one of the driver's private tables: noted once the file is mapped, as far as there is room. */
void usage_table(const uint8_t id[16]);

uint64_t usage_total(int card);

/* A checkpoint moves all that a process has of its cards to the host. What its slot says does not count from then on,
 * until it is taken back. Any process of the container may do either: one at a time, from usage_move_begin to
 * usage_move_end, for nobody else knows which of a checkpoint and a restore the driver did first. */
struct usage_place {
	int slot;			/* or one of these */
	uint64_t tag;
};

#define PLACE_NONE (-1)			/* no process that counts here has the pid, which is one of our PID namespace */
#define PLACE_UNKNOWN (-2)		/* the file cannot be used */

struct usage_place usage_move_begin(int pid);
void usage_move_end(const struct usage_place *place);

void usage_put_aside(const struct usage_place *place);
bool usage_is_aside(const struct usage_place *place);

/* What was put aside counts again, if it stays within rooms[card] for each card. False: it does not; *card is the one. */
bool usage_take_back(const struct usage_place *place, const uint64_t rooms[CARDS_MAX], int *card);

bool usage_uuid(int card, uint8_t out[16]);	/* the opposite of usage_card; false: the file has no such card */

/* The container's processes with a context on the card that lived so many ms ago at the most. */
unsigned int usage_sharers(int card, uint64_t looked_ms);

struct bucket *usage_bucket(int card);	/* of the container; NULL: it has none */

/* The container's processes that the asker can see with something on the card; returns how many. */
unsigned int usage_processes(int card, struct usage_process *out, unsigned int room);

#endif
