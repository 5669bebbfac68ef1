/* ledger.h - what this process was counted for: each thing that it took, and how much that was. */
#ifndef EDGEGPU_LIMITER_LEDGER_H
#define EDGEGPU_LIMITER_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "process.h"

enum ledger_kind {
	LEDGER_NONE,
	LEDGER_POINTER,
	LEDGER_ARRAY,
	LEDGER_MIPMAP,
	LEDGER_BACKING,			/* cuMemCreate */
	LEDGER_MAPPING,			/* cuMemMap; `bytes` of address, `of` is its backing */
	LEDGER_CONTEXT,
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

/* Change an entry's references; the number that it has then, -1: there is none such. */
int ledger_refer(enum ledger_kind kind, uint64_t key, int change);

/* Take everything of a context, and call each with it; each must not use the ledger. */
void ledger_take_context(uint64_t context, void (*each)(const struct ledger_entry *));

/* Take any mapping that begins in [from, from + bytes). False: there is none. */
bool ledger_take_mapping(uint64_t from, uint64_t bytes, struct ledger_entry *out);

#endif
