/* ledger.h - what this process was counted for: each thing that it took, and how much that was. */
#ifndef EDGEGPU_LIMITER_LEDGER_H
#define EDGEGPU_LIMITER_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "process.h"

enum ledger_kind {
	LEDGER_NONE,
	/* What ends with its context, if it has one. */
	LEDGER_POINTER,
	LEDGER_ARRAY,
	LEDGER_MIPMAP,
	LEDGER_CONTEXT,
	LEDGER_MODULE,			/* `references` is 2 once one of its functions was asked for */
	LEDGER_LIVE,			/* what a library has in a context; `references` has its number and what was
					 * asked for there (cuda_module.c) */
	LEDGER_SETTING,			/* cuCtxSetLimit; local memory (cuda_stack.c) */
	/* What outlives any. */
	LEDGER_BACKING,			/* cuMemCreate; `of` is its number (cuda_virtual.c) */
	LEDGER_MAPPING,			/* cuMemMap; `bytes` of address, `of` is its backing, `references` that one's number */
	LEDGER_BOUND,			/* cuMulticastBind…; `of` is the object, `bytes` the backing's handle, as in these */
	LEDGER_TILES,			/* cuMemMapArrayAsync; `of` is the array, `bytes` the backing's handle. Arrays that
					 * end with their context are not among those that are taken: it stays */
	LEDGER_POOL,			/* `bytes` that it holds of the card */
	LEDGER_POOLED,			/* memory of a pool; the pool counts, `of` is its handle */
	LEDGER_GRAPHS,			/* what graphs hold of a device, which is the key */
	LEDGER_EXECUTABLE,		/* cuda_graph.h */
	LEDGER_LIBRARY,			/* `references` is its number, `bytes` its image's size; what it has of the card
					 * is LEDGER_LIVE */
	LEDGER_LOCAL,			/* a function or kernel; `bytes` that each of its threads needs (cuda_local.c) */
};

struct ledger_entry {
	uint64_t key;			/* pointer or handle */
	uint64_t bytes;
	uint64_t of;			/* its context; 0: it outlives any */
	unsigned int references;
	uint16_t kind;
	int16_t card;			/* in the usage file */
};

/* Remember. False: no memory for it; what was counted stays counted, which is the safe side. */
bool ledger_put(struct ledger_entry entry);

bool ledger_take(enum ledger_kind kind, uint64_t key, struct ledger_entry *out);	/* and forget */
bool ledger_has(enum ledger_kind kind, uint64_t key);

bool ledger_get(enum ledger_kind kind, uint64_t key, struct ledger_entry *out);

/* Set an entry's bytes; out is what it was. False: there is none such. */
bool ledger_set(enum ledger_kind kind, uint64_t key, uint64_t bytes, struct ledger_entry *out);

/* Copy the next of a kind, from place *at on. What moves meanwhile may be passed over. */
bool ledger_next(enum ledger_kind kind, unsigned int *at, struct ledger_entry *out);

/* Take any of a kind with that `of`. False: there is none. */
bool ledger_take_of(enum ledger_kind kind, uint64_t of, struct ledger_entry *out);

/* Give each of a kind with one `of` another. */
void ledger_move_of(enum ledger_kind kind, uint64_t from, uint64_t to);

/* Change an entry's references; the number that it has then, -1: there is none such. */
int ledger_refer(enum ledger_kind kind, uint64_t key, int change);

/* Take everything of a context, and call each with it; each must not use the ledger. */
void ledger_take_context(uint64_t context, void (*each)(const struct ledger_entry *));

/* Copy the mappings that have any of [at, at + bytes), `room` at most; how many there are. */
unsigned int ledger_mapped(uint64_t at, uint64_t bytes, struct ledger_entry *out, unsigned int room);

/* Take any mapping that begins in [from, from + bytes). False: there is none. */
bool ledger_take_mapping(uint64_t from, uint64_t bytes, struct ledger_entry *out);

#endif
